#include "kernels/simt/emulator/engine/resident_blocks.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <map>
#include <utility>

#include "kernels/simt/emulator/emulator.h"
#include "kernels/simt/emulator/engine/parts.h"
#include "runtime/base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) static_cast<void>(0)
#define ASAN_UNPOISON_MEMORY_REGION(p, n) static_cast<void>(0)
#endif

namespace quintet::emulated::simt::emulator {
namespace {

constexpr size_t kSharedAlignment = 1024;
constexpr size_t kGap = 1024;  // between the shared memories of two blocks

thread_local Counters counted;

/// Three consecutive seeds see the three delays; the rest of the policy comes from the seed too.
Policy policy_of(uint64_t seed, Random& random) {
  Policy policy;
  policy.delay = static_cast<Delay>(seed % 3);
  // Staying with a warp is faster: its stacks are in the cache.
  unsigned often;
  if (seed < 3) {
    const unsigned first[] = {4, 7, 2};
    const LaneOrder orders[] = {LaneOrder::kRandom, LaneOrder::kDescending, LaneOrder::kRandom};
    often = first[seed];
    policy.lanes = orders[seed];
  } else {
    often = random.below(8);
    policy.lanes = static_cast<LaneOrder>(random.below(3));
  }
  policy.leave = 0xffffffffu >> often;
  return policy;
}

std::string text(const uint3& i) { return fmt::format("({}, {}, {})", i.x, i.y, i.z); }

/// "0-3, 7": ranges of numbers that are in order.
std::string ranges(const std::vector<int>& numbers) {
  std::string out;
  for (size_t i = 0; i < numbers.size();) {
    size_t j = i;
    while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + 1) ++j;
    out += fmt::format("{}{}", out.empty() ? "" : ", ", numbers[i]);
    if (j > i) out += fmt::format("-{}", numbers[j]);
    i = j + 1;
  }
  return out;
}

std::string kernel_name(const Shape& shape) {
  return fmt::format("kernel {}{}launched at {}:{}", shape.name, *shape.name ? " " : "", shape.file,
                     shape.line);
}

}  // namespace

Counters& mutable_counters() { return counted; }
const Counters& counters() { return counted; }

ResidentBlocks::ResidentBlocks(const Shape& s, const Body& body, uint64_t seed)
    : random(seed), shape(s), body_(body), seed_(seed) {
  host_.host = true;
}
ResidentBlocks::~ResidentBlocks() {
  abandon();
  ASAN_UNPOISON_MEMORY_REGION(memory_.data(), memory_.size());
}

void ResidentBlocks::prepare(const std::vector<uint3>& indices, uint64_t number) {
  random = Random(seed_ * 0x100000001B3ull + number);
  policy = policy_of(seed_, random);
  const size_t stride =
      (shape.shared + kGap + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
  ASAN_UNPOISON_MEMORY_REGION(memory_.data(), memory_.size());
  memory_.resize(stride * indices.size() + kSharedAlignment);
  char* base = memory_.data();
  base +=
      (kSharedAlignment - reinterpret_cast<uintptr_t>(base) % kSharedAlignment) % kSharedAlignment;

  const int per_block = static_cast<int>(shape.block.x * shape.block.y * shape.block.z);
  const int warps_per_block = (per_block + 31) / 32;
  const int n = static_cast<int>(indices.size());
  blocks.resize(indices.size());
  warps.resize(static_cast<size_t>(n * warps_per_block));
  threads.resize(static_cast<size_t>(n * per_block));
  ready_warps_.assign((warps.size() + 63) / 64, 0);
  for (int b = 0; b < n; ++b) {
    Block& block = blocks[static_cast<size_t>(b)];
    block.index = indices[static_cast<size_t>(b)];
    block.shape = &shape;
    block.resident_blocks = this;
    block.number = b;
    block.live = per_block;
    block.shared = base + static_cast<size_t>(b) * stride;
    std::memset(block.shared, 0xff, shape.shared);  // NaN in every floating-point type
    ASAN_POISON_MEMORY_REGION(block.shared + shape.shared, stride - shape.shared);
    reset_block(block);
    for (int w = 0; w < warps_per_block; ++w) {
      Warp& warp = warps[static_cast<size_t>(b * warps_per_block + w)];
      warp.number = b * warps_per_block + w;
      warp.first = b * per_block + w * 32;
      const int lanes = std::min(32, per_block - w * 32);
      warp.exists = warp.ready = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1;
      reset_warp(warp);
      ready_warps_[static_cast<size_t>(warp.number / 64)] |= uint64_t{1} << (warp.number % 64);
    }
    uint3 index{0, 0, 0};
    for (int t = 0; t < per_block; ++t) {
      Thread& thread = threads[static_cast<size_t>(b * per_block + t)];
      thread.index = index;
      thread.block = &block;
      thread.warp = &warps[static_cast<size_t>(b * warps_per_block + t / 32)];
      thread.linear = t;
      thread.lane = t % 32;
      thread.fiber = nullptr;
      reset_thread(thread);
      if (++index.x == shape.block.x) {
        index.x = 0;
        if (++index.y == shape.block.y) {
          index.y = 0;
          ++index.z;
        }
      }
    }
  }
  grid_barriers = {};
  grid_arrived.assign(shape.cooperative ? threads.size() : 0, {});
  cluster_barriers.assign(indices.size() / shape.cluster, {});
  ready_ = live_ = n * per_block;
  last_ = nullptr;
  pending_.clear();
  error_ = nullptr;
  counted.blocks += indices.size();
  counted.threads += threads.size();
}

void ResidentBlocks::run(const std::vector<uint3>& indices, uint64_t number, bool previous_ended) {
  prepare(indices, number);
  previous_ended_ = previous_ended;
  run_ready();
}

void ResidentBlocks::finish() {
  previous_ended_ = true;
  for (Thread* thread : std::exchange(waits_for_previous_, {})) wake(thread);
  run_ready();
}

void ResidentBlocks::wait_for_previous() {
  self->waited_for_previous = true;
  if (previous_ended_) return;
  waits_for_previous_.push_back(self);
  suspend("wait_for_previous", 0);
}

void ResidentBlocks::run_ready() {
  ResidentBlocks* outer = current_resident_blocks;
  Thread* outer_self = self;
  current_resident_blocks = this;
  if (ready_ > 0) {
    Thread* first = next();
    prepare_fiber(first);
    self = first;
    transfer(&host_, first->fiber);
  }
  if (!error_) {
    try {
      self = &threads.front();
      while (!pending_.empty()) do_pending();
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  self = outer_self;
  if (error_) {
    abandon();
    pending_.clear();
    current_resident_blocks = outer;
    std::rethrow_exception(error_);
  }
  current_resident_blocks = outer;
}

/// Threads that have not ended never go on.
void ResidentBlocks::abandon() {
  for (Thread& thread : threads) {
    if (!thread.ended && thread.fiber) abandon_fiber(thread.fiber, fiber_main);
    thread.fiber = nullptr;
  }
}

void ResidentBlocks::fiber_main() {
  for (;;) {
    ResidentBlocks* g = current_resident_blocks;
    Fiber* fiber = self->fiber;
    Thread* then = nullptr;
    std::exception_ptr error;
    try {
      g->body_.call(g->body_.bound.get());
      g->end_thread();
      then = g->next();
      if (!then && g->live_ > 0 && g->waits_for_previous_.empty()) throw Bug(g->stuck());
    } catch (...) {
      error = std::current_exception();
      self->ended = true;
    }
    if (then && !then->fiber) {  // a thread that has not started: a plain call on this fiber
      then->fiber = fiber;
      self = then;
      continue;
    }
    park_fiber(fiber);
    if (error) {
      g->error_ = std::move(error);
      transfer(fiber, &g->host_);
    } else if (then) {
      self = then;
      ++counted.switches;
      transfer(fiber, then->fiber);
    } else {
      transfer(fiber, &g->host_);
    }
  }
}

void ResidentBlocks::end_thread() {
  Thread& thread = *self;
  finish_thread(thread);
  thread.ended = true;
  --live_;
  --thread.block->live;
}

void ResidentBlocks::prepare_fiber(Thread* thread) {
  if (!thread->fiber) thread->fiber = take_fiber(fiber_main);
  ++counted.switches;
}

Thread* ResidentBlocks::next() {
  if (!pending_.empty()) {
    if (policy.delay == Delay::kAtOnce ||
        (policy.delay == Delay::kRandom && random.below(8) == 0)) {
      do_pending();
    }
  }
  while (ready_ == 0) {
    if (!do_pending()) return nullptr;
  }
  Warp* warp = last_;
  if (!warp || !warp->ready || random.next() <= policy.leave) {
    const auto words = static_cast<uint32_t>(ready_warps_.size());
    uint32_t word = words == 1 ? 0 : random.below(words);
    while (!ready_warps_[word]) word = word + 1 == words ? 0 : word + 1;
    const int turn = static_cast<int>(random.next() & 63u);
    const int bit = (std::countr_zero(std::rotr(ready_warps_[word], turn)) + turn) & 63;
    warp = last_ = &warps[word * 64 + static_cast<uint32_t>(bit)];
  }
  int lane = 0;
  switch (policy.lanes) {
    case LaneOrder::kRandom: {
      const int turn = static_cast<int>(random.next() & 31u);
      lane = (std::countr_zero(std::rotr(warp->ready, turn)) + turn) & 31;
      break;
    }
    case LaneOrder::kAscending:
      lane = std::countr_zero(warp->ready);
      break;
    case LaneOrder::kDescending:
      lane = 31 - std::countl_zero(warp->ready);
      break;
  }
  warp->ready &= ~(1u << lane);
  if (!warp->ready) {
    ready_warps_[static_cast<size_t>(warp->number / 64)] &= ~(uint64_t{1} << (warp->number % 64));
  }
  --ready_;
  return &threads[static_cast<size_t>(warp->first + lane)];
}

Thread* ResidentBlocks::next_or_stop(Thread* me) {
  Thread* then = next();
  if (!then) {
    // Without kernels to wait for the fiber is never continued: nothing on its stack may own memory.
    if (waits_for_previous_.empty()) error_ = std::make_exception_ptr(Bug(stuck()));
    transfer(me->fiber, &host_);
    return me;
  }
  if (then != me) prepare_fiber(then);
  return then;
}

void ResidentBlocks::yield() {
  if (ready_ == 0 && pending_.empty()) return;
  wake(self);
  suspend(nullptr, 0);
}

void ResidentBlocks::later(std::function<void()> work) {
  pending_.push_back({std::move(work)});
  if (policy.delay == Delay::kAtOnce) do_pending();
}

bool ResidentBlocks::early() {
  return policy.delay == Delay::kAtOnce || (policy.delay == Delay::kRandom && (random.next() & 1u));
}

bool ResidentBlocks::do_pending() {
  if (pending_.empty()) return false;
  const size_t i = random.below(static_cast<uint32_t>(pending_.size()));
  const std::function<void()> work = std::move(pending_[i].run);
  pending_[i] = std::move(pending_.back());
  pending_.pop_back();
  work();
  return true;
}

std::string ResidentBlocks::stuck() const {
  std::string out = fmt::format("{}: deadlock", kernel_name(shape));
  int told = 0;
  for (const Block& block : blocks) {
    if (block.live == 0 && blocks.size() > 1) continue;
    if (++told > 4) {
      out += "; further blocks are not listed";
      break;
    }
    std::map<std::string, std::vector<int>> groups;
    for (const Thread& thread : threads) {
      if (thread.block != &block) continue;
      groups[thread.ended ? std::string("ended")
                          : fmt::format("waiting at {}", describe_wait(thread))]
          .push_back(thread.linear);
    }
    out += fmt::format("; block {}", text(block.index));
    for (const auto& [what, numbers] : groups) {
      out += fmt::format(", threads {} {}", ranges(numbers), what);
    }
  }
  return out;
}

void fail_here(const std::string& message) {
  if (!self) throw Bug(message);
  throw Bug(fmt::format("{}: block {}, thread {}: {}", kernel_name(*self->block->shape),
                        text(self->block->index), text(self->index), message));
}

Block& block_of(const void* p, size_t bytes, const char* what) {
  const auto* address = static_cast<const char*>(p);
  Block* mine = self->block;
  const auto inside = [&](const Block& block) {
    return address >= block.shared && address + bytes <= block.shared + block.shape->shared;
  };
  if (inside(*mine)) return *mine;
  for (Block& block : mine->resident_blocks->blocks) {
    if (!inside(block)) continue;
    if (block.live == 0) {
      fail_here(
          fmt::format("{}: shared memory of block {}, which has ended", what, text(block.index)));
    }
    return block;
  }
  fail_here(
      fmt::format("{}: {} bytes at offset {} are outside the block's {} bytes of shared memory",
                  what, bytes, address - mine->shared, mine->shape->shared));
}

void yield() { resident_blocks().yield(); }

void on_atomic() {
  if (self && ++self->atomics % 64 == 0) resident_blocks().yield();
}

}  // namespace quintet::emulated::simt::emulator
