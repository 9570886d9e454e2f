#pragma once
// The scheduler: the blocks that are resident together (one block, the blocks of a cluster, or a
// cooperative grid) and the order in which their threads run. Internal to the engine.

#include <array>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "kernels/simt/emulator/engine.h"
#include "kernels/simt/emulator/engine/fiber.h"
#include "kernels/simt/launch.cuh"
#include "kernels/simt/resident.cuh"

namespace quintet::emulated::simt::emulator {

/// xorshift64*: the order of a schedule, no more.
class Random {
 public:
  explicit Random(uint64_t seed = 1)
      : state_(seed * 0x9E3779B97F4A7C15ull + 0xD1B54A32D192ED03ull) {
    if (!state_) state_ = 1;
    for (int i = 0; i < 4; ++i) next();
  }
  uint32_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<uint32_t>((state_ * 0x2545F4914F6CDD1Dull) >> 32);
  }
  /// Below n.
  uint32_t below(uint32_t n) { return static_cast<uint32_t>((uint64_t{next()} * n) >> 32); }

 private:
  uint64_t state_;
};

/// When asynchronous work happens: see emulator.h.
enum class Delay { kLate, kRandom, kAtOnce };
enum class LaneOrder { kRandom, kAscending, kDescending };

struct Policy {
  Delay delay = Delay::kLate;
  LaneOrder lanes = LaneOrder::kRandom;
  uint32_t leave = 0;  // a warp that could go on is left with probability leave / 2^32
};

/// Asynchronous work: a copy by the TMA engine.
struct Pending {
  std::function<void()> run;
};

class ResidentBlocks {
 public:
  ResidentBlocks(const Shape& shape, const Body& body, uint64_t seed);
  ~ResidentBlocks();
  /// Runs the blocks with these indices, all resident together: to their end, or until each thread has
  /// ended or waits for the kernels before this one.
  void run(const std::vector<uint3>& indices, uint64_t number, bool previous_ended);
  /// Runs what run() left; the kernels before this one have ended.
  void finish();
  /// The running thread waits for the kernels before this one.
  void wait_for_previous();

  /// Suspends the running thread until wake(it). `what` and `id` say what for.
  [[gnu::always_inline]] void suspend(const char* what, uint64_t id);
  void wake(Thread* thread) { wake(*thread->warp, 1u << thread->lane); }
  void wake(Warp& warp, unsigned lanes);
  void yield();

  /// Hands work over to be done at a moment of the schedule's choosing.
  void later(std::function<void()> work);
  /// Whether work with its own deadline (cp.async, wgmma) is to be done now.
  bool early();

  std::vector<Block> blocks;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::array<BarrierState, kGridBarriers> grid_barriers;
  std::vector<std::array<bool, kGridBarriers>> grid_arrived;  // by thread: and has not waited yet
  std::vector<BarrierState> cluster_barriers;
  Policy policy;
  Random random;
  const Shape& shape;

 private:
  static void fiber_main();
  void prepare(const std::vector<uint3>& indices, uint64_t number);
  void run_ready();
  void abandon();
  Thread* next();
  bool do_pending();
  void prepare_fiber(Thread* thread);
  Thread* next_or_stop(Thread* me);
  void end_thread();
  std::string stuck() const;

  const Body& body_;
  uint64_t seed_;
  Fiber host_;
  std::vector<uint64_t> ready_warps_;
  int ready_ = 0, live_ = 0;
  Warp* last_ = nullptr;
  std::vector<Pending> pending_;
  bool previous_ended_ = false;
  std::vector<Thread*> waits_for_previous_;
  std::exception_ptr error_;
  std::vector<char> memory_;
};

/// The resident blocks of which the running thread is.
inline constinit thread_local ResidentBlocks* current_resident_blocks = nullptr;
inline ResidentBlocks& resident_blocks() { return *current_resident_blocks; }

inline void ResidentBlocks::suspend(const char* what, uint64_t id) {
  Thread* me = self;
  me->waits = what;
  me->waits_id = id;
  Thread* then = next_or_stop(me);
  if (then == me) return;
  self = then;
  transfer(me->fiber, then->fiber);
}

inline void ResidentBlocks::wake(Warp& warp, unsigned lanes) {
  warp.ready |= lanes;
  ready_warps_[static_cast<size_t>(warp.number / 64)] |= uint64_t{1} << (warp.number % 64);
  ready_ += __builtin_popcount(lanes);
}

}  // namespace quintet::emulated::simt::emulator
