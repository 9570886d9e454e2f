// Clusters and cooperative grids.

#include <fmt/format.h>

#include "kernels/simt/emulator/barrier.h"
#include "kernels/simt/emulator/engine/parts.h"
#include "kernels/simt/emulator/engine/resident_blocks.h"
#include "kernels/simt/resident.cuh"

namespace quintet::emulated::simt::emulator {
namespace {

BarrierState& cluster_barrier(const Thread& thread) {
  return resident_blocks()
      .cluster_barriers[static_cast<size_t>(thread.block->number) / thread.block->shape->cluster];
}

// `expected` counts the threads that have ended without an arrival in this phase, `sum` all that
// ended.
void complete_if_done(BarrierState& barrier) {
  const Shape& shape = resident_blocks().shape;
  const unsigned threads = shape.block.x * shape.block.y * shape.block.z * shape.cluster;
  if (barrier.arrived == 0 || barrier.arrived + barrier.expected < threads) return;
  ++barrier.phase;
  barrier.arrived = 0;
  barrier.expected = barrier.sum;
  for (Thread* thread : barrier.waiting) resident_blocks().wake(thread);
  barrier.waiting.clear();
}

bool& grid_arrived(int number) {
  ResidentBlocks& resident = resident_blocks();
  return resident.grid_arrived[static_cast<size_t>(self - resident.threads.data())]
                              [static_cast<size_t>(number)];
}

}  // namespace

uint32_t cluster_rank() {
  return static_cast<uint32_t>(self->block->number) % self->block->shape->cluster;
}

void cluster_arrive() {
  BarrierState& barrier = cluster_barrier(*self);
  if (self->cluster_arrived) fail_here("cluster_arrive: twice without cluster_wait");
  self->cluster_arrived = true;
  self->cluster_phase = barrier.phase;
  ++barrier.arrived;
  complete_if_done(barrier);
}

void cluster_wait() {
  BarrierState& barrier = cluster_barrier(*self);
  if (!self->cluster_arrived) fail_here("cluster_wait: without cluster_arrive");
  self->cluster_arrived = false;
  if (barrier.phase != self->cluster_phase) return;
  barrier.waiting.push_back(self);
  resident_blocks().suspend("cluster_wait", 0);
}

void leave_cluster(Thread& thread) {
  if (resident_blocks().shape.cooperative)
    for (int number = 0; number < kGridBarriers; ++number)
      if (grid_arrived(number)) fail_here("ended between grid_arrive and grid_wait");
  if (resident_blocks().shape.cluster == 1) return;
  BarrierState& barrier = cluster_barrier(thread);
  ++barrier.sum;
  if (!thread.cluster_arrived || barrier.phase != thread.cluster_phase) ++barrier.expected;
  complete_if_done(barrier);
}

void grid_sync() { grid_wait(0, grid_arrive(0)); }

uint32_t grid_arrive(int number) {
  if (!resident_blocks().shape.cooperative)
    fail_here("grid barrier: the launch is not cooperative");
  if (grid_arrived(number)) fail_here("grid_arrive: twice without grid_wait");
  grid_arrived(number) = true;
  BarrierState& barrier = resident_blocks().grid_barriers[static_cast<size_t>(number)];
  const uint32_t phase = barrier.phase;
  if (++barrier.arrived == resident_blocks().threads.size()) {
    barrier.arrived = 0;
    ++barrier.phase;
    for (Thread* thread : barrier.waiting) resident_blocks().wake(thread);
    barrier.waiting.clear();
  }
  return phase;
}

void grid_wait(int number, uint32_t phase) {
  if (!resident_blocks().shape.cooperative || !grid_arrived(number))
    fail_here("grid_wait: without grid_arrive");
  grid_arrived(number) = false;
  BarrierState& barrier = resident_blocks().grid_barriers[static_cast<size_t>(number)];
  if (barrier.phase != phase) return resident_blocks().yield();
  barrier.waiting.push_back(self);
  resident_blocks().suspend("grid barrier", static_cast<uint64_t>(number));
}

void* map_cluster_address(void* p, uint32_t rank) {
  if (rank >= self->block->shape->cluster) {
    fail_here(
        fmt::format("map_cluster: rank {} in a cluster of {}", rank, self->block->shape->cluster));
  }
  const Block& from = block_of(p, 0, "map_cluster");
  const auto first = static_cast<uint32_t>(self->block->number) / self->block->shape->cluster *
                     self->block->shape->cluster;
  const Block& to = resident_blocks().blocks[first + rank];
  if (to.live == 0) fail_here(fmt::format("map_cluster: block of rank {} has ended", rank));
  return to.shared + (static_cast<char*>(p) - from.shared);
}

}  // namespace quintet::emulated::simt::emulator
