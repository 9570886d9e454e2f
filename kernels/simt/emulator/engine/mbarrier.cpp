// mbarriers and the asynchronous proxy's view of shared memory.

#include <fmt/format.h>

#include <cstring>

#include "kernels/simt/emulator/barrier.h"
#include "kernels/simt/emulator/engine/parts.h"
#include "kernels/simt/emulator/engine/resident_blocks.h"
#include "kernels/simt/emulator/engine/state.h"

namespace quintet::emulated::simt::emulator {
namespace {

constexpr uint64_t kMark = 0x4261720000000000ull;
constexpr uint32_t kMost = (1u << 20) - 1;

size_t offset_in(const Block& block, const uint64_t* bar) {
  return static_cast<size_t>(reinterpret_cast<const char*>(bar) - block.shared);
}

/// The barrier at `bar`, of this block or another of the cluster.
PhaseBarrier& find(uint64_t* bar, const char* what) {
  Block& block = block_of(bar, 8, what);
  const size_t offset = offset_in(block, bar);
  const uint64_t number = *bar - kMark;
  if (number >= block.phase_barriers.size() || block.phase_barriers[number]->offset != offset) {
    fail_here(
        fmt::format("{}: the 8 bytes at offset {} of shared memory are not an mbarrier (not "
                    "initialised yet, or overwritten)",
                    what, offset));
  }
  return *block.phase_barriers[number];
}

void complete_if_done(PhaseBarrier& barrier) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  ++barrier.phase;
  barrier.pending = barrier.expected;
  for (Thread* thread : barrier.waiting) resident_blocks().wake(thread);
  barrier.waiting.clear();
}

}  // namespace

void mbarrier_init(uint64_t* bar, uint32_t count) {
  Block& block = block_of(bar, 8, "mbarrier_init");
  const size_t offset = offset_in(block, bar);
  if (offset % 8 || count < 1 || count > kMost) {
    fail_here(
        fmt::format("mbarrier_init: offset {}, count {}; expected a multiple of 8 and 1 to {}",
                    offset, count, kMost));
  }
  for (size_t i = 0; i < block.phase_barriers.size(); ++i) {
    PhaseBarrier& old = *block.phase_barriers[i];
    if (old.offset != offset) continue;
    if (!old.waiting.empty()) {
      fail_here(fmt::format("mbarrier_init: threads wait at the barrier at offset {}", offset));
    }
    old.offset = ~size_t{0};  // gone
  }
  auto barrier = std::make_unique<PhaseBarrier>();
  barrier->offset = offset;
  barrier->expected = barrier->pending = count;
  *bar = kMark + block.phase_barriers.size();
  block.phase_barriers.push_back(std::move(barrier));
}

void mbarrier_arrive(uint64_t* bar, uint32_t count, uint32_t bytes) {
  PhaseBarrier& barrier = find(bar, "mbarrier_arrive");
  if (barrier.pending < count) {
    fail_here(fmt::format("mbarrier at offset {}: more arrivals than its {} in phase {}",
                          barrier.offset, barrier.expected, barrier.phase));
  }
  barrier.bytes += bytes;
  if (barrier.bytes > kMost) {
    fail_here(fmt::format("mbarrier at offset {}: {} bytes expected; at most {}", barrier.offset,
                          barrier.bytes, kMost));
  }
  barrier.pending -= count;
  complete_if_done(barrier);
}

void mbarrier_complete(uint64_t* bar, uint32_t bytes) {
  PhaseBarrier& barrier = find(bar, "asynchronous copy");
  barrier.bytes -= bytes;
  complete_if_done(barrier);
}

bool mbarrier_test(uint64_t* bar, uint32_t parity) {
  const bool done = (find(bar, "mbarrier_test").phase & 1u) != parity;
  if (!done) yield();
  return done;
}

void mbarrier_wait(uint64_t* bar, uint32_t parity) {
  if (parity > 1) fail_here(fmt::format("mbarrier_wait: parity {}", parity));
  const Block& block = block_of(bar, 8, "mbarrier_wait");
  if (&block != self->block) fail_here("mbarrier_wait: the barrier is another block's");
  for (;;) {
    PhaseBarrier& barrier = find(bar, "mbarrier_wait");
    if ((barrier.phase & 1u) != parity) return;
    barrier.waiting.push_back(self);
    resident_blocks().suspend("mbarrier_wait", barrier.offset * 2 + parity);
  }
}

void fence_async() {
  for (Block& block : resident_blocks().blocks) block.proxy_fenced = true;
}

void proxy_issue(Block& block) {
  const size_t bytes = block.shape->shared;
  if (block.proxy.size() != bytes) block.proxy.assign(bytes, static_cast<char>(0xff));
  if (!block.proxy_fenced) return;
  std::memcpy(block.proxy.data(), block.shared, bytes);
  block.proxy_fenced = false;
}

void proxy_read(const Block& block, const char* p, void* out) {
  uint64_t seen[2], there[2];
  std::memcpy(seen, block.proxy.data() + (p - block.shared), 16);
  std::memcpy(there, p, 16);
  if (seen[0] != there[0] || seen[1] != there[1]) there[0] = there[1] = ~uint64_t{0};
  std::memcpy(out, there, 16);
}

void proxy_write(Block& block, char* p, const void* data, size_t bytes) {
  const size_t size = block.shape->shared;
  if (block.proxy.size() != size) block.proxy.assign(size, static_cast<char>(0xff));
  std::memcpy(p, data, bytes);
  std::memcpy(block.proxy.data() + (p - block.shared), data, bytes);
}

}  // namespace quintet::emulated::simt::emulator
