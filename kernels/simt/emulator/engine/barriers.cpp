// Barriers of a block, and the words for what threads wait at.

#include <fmt/format.h>

#include "kernels/simt/emulator/engine/parts.h"
#include "kernels/simt/emulator/engine/resident_blocks.h"
#include "kernels/simt/emulator/engine/state.h"

namespace quintet::emulated::simt::emulator {
namespace {

// Messages are made elsewhere, so that the frame of a waiting thread is small.
[[gnu::noinline]] void check(const BarrierState& barrier, unsigned id, unsigned count, unsigned all,
                             const char* what) {
  if (count % 32 != 0 || count > all || count == 0) {
    fail_here(
        fmt::format("{}: barrier {}: {} threads; expected a multiple of 32, at most the block's {}",
                    what, id, count, all));
  }
  if (barrier.arrived > 0 && barrier.expected != count) {
    fail_here(fmt::format("{}: barrier {} of {} threads, but others are there for one of {}", what,
                          id, count, barrier.expected));
  }
}
[[gnu::noinline, noreturn]] void fail_id(unsigned id, const char* what) {
  fail_here(fmt::format("{}: barrier {} is not below 16", what, id));
}

[[gnu::always_inline]] inline unsigned arrive(unsigned id, unsigned count, bool arrive_only,
                                              unsigned add, const char* what) {
  Block& block = *self->block;
  const dim3& size = block.shape->block;
  const unsigned all = size.x * size.y * size.z;
  if (id >= block.barriers.size()) fail_id(id, what);
  BarrierState& barrier = block.barriers[id];
  if (id != 0 || count != 0)
    check(barrier, id, count, all, what);
  else
    count = all;
  barrier.expected = count;
  barrier.sum += add;
  if (++barrier.arrived < count) {
    if (arrive_only) return 0;
    barrier.lanes[static_cast<size_t>(self->linear / 32)] |= 1u << self->lane;
    resident_blocks().suspend(what, id);
    return barrier.last_sum;
  }
  barrier.last_sum = barrier.sum;
  barrier.arrived = barrier.sum = 0;
  Warp* warps = self->warp - self->linear / 32;
  const unsigned number = (all + 31) / 32;
  for (unsigned w = 0; w < number; ++w) {
    if (barrier.lanes[w]) resident_blocks().wake(warps[w], barrier.lanes[w]);
    barrier.lanes[w] = 0;
  }
  if (!arrive_only) resident_blocks().yield();  // the last to arrive is not the first to go on
  return barrier.last_sum;
}

}  // namespace

void block_barrier(unsigned id, unsigned count, bool arrive_only, const char* what) {
  arrive(id, count, arrive_only, 0, what);
}

int block_count(bool predicate) {
  return static_cast<int>(arrive(0, 0, false, predicate, "__syncthreads_count"));
}

std::string describe_wait(const Thread& thread) {
  if (!thread.waits) return "nothing";
  const std::string what = thread.waits;
  if (what.starts_with("__syncthreads") || what.starts_with("named")) {
    const BarrierState& barrier = thread.block->barriers[thread.waits_id];
    return fmt::format("{} (barrier {}: {} of {} threads are there)", what, thread.waits_id,
                       barrier.arrived, barrier.expected);
  }
  if (what == "mbarrier_wait") {
    for (const auto& barrier : thread.block->phase_barriers) {
      if (barrier->offset != thread.waits_id / 2) continue;
      return fmt::format(
          "{} (at offset {}, parity {}: phase {}, {} of {} arrivals and {} bytes missing)", what,
          barrier->offset, thread.waits_id % 2, barrier->phase, barrier->pending, barrier->expected,
          barrier->bytes);
    }
  }
  if (what.find("_sync") != std::string::npos || what.find("syncwarp") != std::string::npos ||
      what.starts_with("mma") || what.find("matrix") != std::string::npos) {
    for (const Collective& c : thread.warp->collectives) {
      if (c.what && c.mask == thread.waits_id && ((c.arrived >> thread.lane) & 1u)) {
        return fmt::format("{} (mask {:08x}, lanes {:08x} are there)", what, c.mask, c.arrived);
      }
    }
    return what;
  }
  return fmt::format("{} ({})", what, thread.waits_id);
}

}  // namespace quintet::emulated::simt::emulator
