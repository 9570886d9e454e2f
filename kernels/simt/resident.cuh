#pragma once
// Cooperative launches: how large they may be, and barriers of their whole grid in two halves, so that a
// block does other work while it waits for the slowest. cluster.cuh has both at once, grid_sync().
//
//   const uint32_t arrival = simt::grid_arrive(0);   // what this block has written may be read
//   // other work, also rounds of barrier 1
//   simt::grid_wait(0, arrival);                     // what all blocks had written may be read
//
// A grid counts on the whole device (Launch::cooperative): two at a time, in streams of one process or of
// processes that share the device, may wait for each other's multiprocessors.

#include "kernels/simt/launch.cuh"

namespace quintet::QT_GPU::simt {

/// The most blocks of a kernel, launched like `how` but for its grid, that the device holds
/// together.
int64_t resident_blocks(const void* kernel, const Launch& how);

template <typename... P>
int64_t resident_blocks(void (*kernel)(P...), const Launch& how) {
  return resident_blocks(reinterpret_cast<const void*>(kernel), how);
}

/// Barriers of a grid, for rounds that overlap.
inline constexpr int kGridBarriers = 2;

#ifdef QUINTET_EMULATE
namespace emulator {
uint32_t grid_arrive(int barrier);
void grid_wait(int barrier, uint32_t arrival);
}  // namespace emulator
QT_DEVICE uint32_t grid_arrive(int barrier) { return emulator::grid_arrive(barrier); }
QT_DEVICE void grid_wait(int barrier, uint32_t arrival) { emulator::grid_wait(barrier, arrival); }
#else
namespace grid_barrier {
/// Arrivals so far, in all launches: bit 31 flips when all blocks of a round have arrived.
static __device__ unsigned int arrivals_of[kGridBarriers];
}  // namespace grid_barrier

/// Says that this block has come here; the result is for grid_wait. All blocks of a cooperative grid
/// (Launch::cooperative), with blocks along x, call both in turn, all threads of each. Cooperative
/// launches of kernels of one source file must not overlap: they share the counters.
QT_DEVICE uint32_t grid_arrive(int barrier) {
  __syncthreads();
  if (threadIdx.x != 0) return 0;
  // One block adds what is missing to 2^31, so that the top bit flips with the last arrival and
  // the lower bits return to zero.
  const unsigned int add = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
  __threadfence();
  return atomicAdd(&grid_barrier::arrivals_of[barrier], add);
}
/// Waits for all blocks' arrivals in the round of `arrival`.
QT_DEVICE void grid_wait(int barrier, uint32_t arrival) {
  if (threadIdx.x == 0) {
    const volatile unsigned int* arrivals = &grid_barrier::arrivals_of[barrier];
    while (((arrival ^ *arrivals) & 0x80000000u) == 0) {
    }
    __threadfence();
  }
  __syncthreads();
}
#endif

}  // namespace quintet::QT_GPU::simt
