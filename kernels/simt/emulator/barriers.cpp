// Barriers of a block, and the words for what threads wait at.

#include <fmt/format.h>

#include "kernels/simt/emulator/gang.h"
#include "kernels/simt/emulator/parts.h"
#include "kernels/simt/emulator/state.h"

namespace quintet::emulated::simt::emulator {
namespace {

[[gnu::always_inline]] inline unsigned arrive(unsigned id, unsigned count, bool arrive_only, unsigned add, const char* what) {
  Block& block = *self->block;
  const dim3& size = block.shape->block;
  const unsigned all = size.x * size.y * size.z;
  if (id >= block.barriers.size()) fail_here(fmt::format("{}: barrier {} is not below 16", what, id));
  if (count == 0) {
    count = all;
  } else if (count % 32 != 0 || count > all) {
    fail_here(fmt::format("{}: barrier {}: {} threads; expected a multiple of 32, at most the block's {}",
                          what, id, count, all));
  }
  BarrierState& barrier = block.barriers[id];
  if (barrier.arrived > 0 && barrier.expected != count) {
    fail_here(fmt::format("{}: barrier {} of {} threads, but others are there for one of {}", what, id,
                          count, barrier.expected));
  }
  barrier.expected = count;
  barrier.sum += add;
  if (++barrier.arrived < count) {
    if (arrive_only) return 0;
    barrier.waiting.push_back(self);
    gang().suspend(what, id);
    return self->result;
  }
  const unsigned sum = barrier.sum;
  barrier.arrived = barrier.sum = 0;
  for (Thread* thread : barrier.waiting) {
    thread->result = sum;
    gang().wake(thread);
  }
  barrier.waiting.clear();
  if (!arrive_only) gang().yield();  // the last to arrive is not the first to go on
  return sum;
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
      return fmt::format("{} (at offset {}, parity {}: phase {}, {} of {} arrivals and {} bytes missing)",
                         what, barrier->offset, thread.waits_id % 2, barrier->phase, barrier->pending,
                         barrier->expected, barrier->bytes);
    }
  }
  if (what.find("_sync") != std::string::npos || what.find("syncwarp") != std::string::npos ||
      what.starts_with("mma") || what.find("matrix") != std::string::npos) {
    for (const Collective& c : thread.warp->collectives) {
      if (c.mask == thread.waits_id && ((c.arrived >> thread.lane) & 1u)) {
        return fmt::format("{} (mask {:08x}, lanes {:08x} are there)", what, c.mask, c.arrived);
      }
    }
    return what;
  }
  return fmt::format("{} ({})", what, thread.waits_id);
}

}  // namespace quintet::emulated::simt::emulator
