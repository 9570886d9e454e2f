#pragma once
// One CUDA thread, its warp and its block as the emulator sees them, and the points at which a
// thread may wait. Internal to kernels/simt; tests and the runtime use emulator.h.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/simt/emulator/vectors.h"

namespace quintet::emulated::simt::emulator {

struct Fiber;
struct Block;
struct Warp;
class ResidentBlocks;
// state.h:
struct Copies;        // cp.async of a thread
struct Products;      // wgmma of a thread
struct WarpProducts;  // wgmma of a warp
struct BulkStores;    // bulk stores of a thread
struct PhaseBarrier;  // an mbarrier

struct alignas(64) Thread {
  uint3 index;  // threadIdx
  Block* block;
  Warp* warp;
  int linear, lane;
  Fiber* fiber;       // null until it runs
  const char* waits;  // what it waits for; null: it does not
  uint64_t waits_id;  // which barrier, or the mask
  unsigned atomics;   // since its last yield
  bool ended;
  bool waited_for_previous;
  uint32_t cluster_phase;  // of the cluster's barrier, when it arrived
  bool cluster_arrived;    // and has not waited yet
  std::unique_ptr<Copies> copies;
  std::unique_ptr<Products> products;
  std::unique_ptr<BulkStores> stores;
  Thread();
  ~Thread();
  Thread(Thread&&) noexcept;
};

/// The running thread of this host thread; null outside kernels.
inline constinit thread_local Thread* self = nullptr;

/// A warp-wide operation that some lanes have reached.
struct Collective {
  const char* what;  // null: free
  unsigned mask, arrived;
  void* lanes[32];
};

struct Warp {
  int first = 0;        // its lane 0 in ResidentBlocks::threads
  int number = 0;       // in ResidentBlocks::warps
  unsigned exists = 0;  // lanes that are threads of the block
  unsigned ready = 0;
  std::vector<Collective> collectives;
  std::unique_ptr<WarpProducts> products;
  Warp();
  ~Warp();
  Warp(Warp&&) noexcept;
};

struct BarrierState {
  unsigned expected = 0, arrived = 0;
  unsigned sum = 0, last_sum = 0;  // of predicates
  uint32_t phase = 0;
  std::vector<Thread*> waiting;         // of cluster and grid barriers
  std::array<unsigned, 32> lanes = {};  // waiting at a block's barrier, by warp
};

/// What all blocks of a launch share.
struct Shape {
  dim3 grid, block;
  unsigned cluster = 1;
  size_t shared = 0;
  bool cooperative = false;
  bool early = false;
  const char* name = "";
  const char* file = "";
  int line = 0;
};

struct Block {
  uint3 index;  // blockIdx
  const Shape* shape = nullptr;
  ResidentBlocks* resident_blocks = nullptr;
  int number = 0;          // among those that are resident together
  int live = 0;            // threads that have not ended
  char* shared = nullptr;  // dynamic shared memory, at a multiple of 1024
  std::array<BarrierState, 16> barriers;
  std::vector<std::unique_ptr<PhaseBarrier>> phase_barriers;
  // Shared memory as the asynchronous proxy (wgmma, TMA) sees it: as it was when an asynchronous
  // instruction was issued after a proxy fence. Empty until the first such instruction.
  std::vector<char> proxy;
  bool proxy_fenced = false;
  Block();
  ~Block();
  Block(Block&&) noexcept;
};

/// Throws Bug, naming kernel, block and thread.
[[noreturn]] void fail_here(const std::string& message);

/// Waits at barrier `id` of the block (0-15) until `count` threads (0: all) have arrived, or only
/// arrives.
void block_barrier(unsigned id, unsigned count, bool arrive_only, const char* what);
/// __syncthreads() that counts the threads with a true predicate.
int block_count(bool predicate);

/// The lanes of `mask` meet; the last to arrive runs `run` for all, with their arguments by lane.
void warp_collective(const char* what, unsigned mask, void* argument,
                     void (*run)(void* const* lanes, unsigned mask));
/// Lanes of this warp that have not ended.
unsigned active_lanes();

/// Others may run.
void yield();
/// Counts an atomic operation: one in 64 yields, so that a spinning thread cannot hold up the rest.
void on_atomic();

/// The block resident with the running thread's in whose shared memory [p, p + bytes) lies; throws Bug,
/// naming `what`, if there is none.
Block& block_of(const void* p, size_t bytes, const char* what);

}  // namespace quintet::emulated::simt::emulator
