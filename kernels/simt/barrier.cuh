#pragma once
// Barriers among some warps of a block.
// PTX ISA, "Parallel Synchronization and Communication Instructions": barrier, bar.

#include "kernels/simt/shared.cuh"

namespace quintet::QT_GPU::simt {

#ifdef QUINTET_EMULATE
QT_DEVICE void named_barrier_sync(int id, int threads) {
  emulator::block_barrier(static_cast<unsigned>(id), static_cast<unsigned>(threads), false,
                          "named_barrier_sync");
}
QT_DEVICE void named_barrier_arrive(int id, int threads) {
  emulator::block_barrier(static_cast<unsigned>(id), static_cast<unsigned>(threads), true,
                          "named_barrier_arrive");
}
#else
/// Waits at barrier `id` (1-15; 0 is __syncthreads) until `threads` threads, a multiple of 32, have
/// arrived. Whole warps call it.
QT_DEVICE void named_barrier_sync(int id, int threads) {
  asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
/// Arrives without waiting.
QT_DEVICE void named_barrier_arrive(int id, int threads) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
#endif

}  // namespace quintet::QT_GPU::simt
