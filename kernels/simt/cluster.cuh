#pragma once
// Clusters of blocks with distributed shared memory, and barriers over a whole cooperative grid.
// PTX ISA, "barrier.cluster", "mapa", "Special Registers: %cluster_ctarank, %cluster_nctarank".

#include "kernels/simt/barrier.cuh"
#include "kernels/simt/shared.cuh"

namespace quintet::QT_GPU::simt {

#ifdef QUINTET_EMULATE
QT_DEVICE uint32_t cluster_rank() { return emulator::cluster_rank(); }
QT_DEVICE uint32_t cluster_size() { return emulator::self->block->shape->cluster; }
QT_DEVICE void cluster_arrive() { emulator::cluster_arrive(); }
QT_DEVICE void cluster_wait() { emulator::cluster_wait(); }
template <typename T>
Shared<T> map_cluster(const Shared<T>& p, uint32_t rank) {
  return {emulator::map_cluster(p.get(), rank), emulator::map_cluster(p.begin(), rank),
          emulator::map_cluster(p.begin(), rank) + (p.end() - p.begin())};
}
template <typename T>
T* map_cluster(T* p, uint32_t rank) {
  return emulator::map_cluster(p, rank);
}
QT_DEVICE void grid_sync() { emulator::grid_sync(); }
#else
/// This block's number in its cluster.
QT_DEVICE uint32_t cluster_rank() {
  uint32_t r = 0;
  QT_SM90_BODY(asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)));
  return r;
}
QT_DEVICE uint32_t cluster_size() {
  uint32_t r = 1;
  QT_SM90_BODY(asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(r)));
  return r;
}
QT_DEVICE void cluster_arrive() {
  QT_SM90_BODY(asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"));
}
/// Waits until all threads of the cluster that have not ended have arrived.
QT_DEVICE void cluster_wait() {
  QT_SM90_BODY(asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"));
}
/// The same place of shared memory in the block of that rank. A block must not end while others use
/// its memory: cluster_sync() at the end.
template <typename T>
QT_DEVICE T* map_cluster([[maybe_unused]] T* p, [[maybe_unused]] uint32_t rank) {
  uint64_t r = 0;
  QT_SM90_BODY(asm volatile("mapa.u64 %0, %1, %2;"
                            : "=l"(r)
                            : "l"(reinterpret_cast<uint64_t>(p)), "r"(rank)));
  return reinterpret_cast<T*>(r);
}

namespace grid_barrier {
/// Arrivals so far, in all launches: bit 31 flips when all blocks of a round have arrived.
static __device__ unsigned int arrivals;
}  // namespace grid_barrier

/// Waits for all threads of a cooperative grid (Launch::cooperative). Cooperative launches of
/// kernels of one source file must not overlap: they share one counter.
QT_DEVICE void grid_sync() {
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
    const unsigned int blocks = gridDim.x * gridDim.y * gridDim.z;
    const bool first = blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0;
    // One block adds what is missing to 2^31, so that the top bit flips with the last arrival and
    // the lower bits return to zero.
    const unsigned int add = first ? 0x80000000u - (blocks - 1) : 1;
    __threadfence();
    const unsigned int before = atomicAdd(&grid_barrier::arrivals, add);
    while (((before ^ *static_cast<volatile unsigned int*>(&grid_barrier::arrivals)) &
            0x80000000u) == 0) {
    }
    __threadfence();
  }
  __syncthreads();
}
#endif

QT_DEVICE void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

}  // namespace quintet::QT_GPU::simt
