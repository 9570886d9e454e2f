#pragma once
// mbarriers, the asynchronous proxy's view, clusters and grids as the emulator does them; see
// kernels/simt/barrier.cuh and cluster.cuh.

#include <cstdint>

#include "kernels/simt/emulator/engine.h"

namespace quintet::emulated::simt::emulator {

void mbarrier_init(uint64_t* bar, uint32_t count);
/// Expects `bytes` more, then arrives `count` times.
void mbarrier_arrive(uint64_t* bar, uint32_t count, uint32_t bytes);
/// `bytes` have arrived.
void mbarrier_complete(uint64_t* bar, uint32_t bytes);
bool mbarrier_test(uint64_t* bar, uint32_t parity);
void mbarrier_wait(uint64_t* bar, uint32_t parity);

/// What the asynchronous proxy may read has caught up with what threads wrote.
void fence_async();
/// An asynchronous instruction is issued: its view of the block's shared memory is made up to date
/// if some thread has fenced since.
void proxy_issue(Block& block);
/// What the asynchronous proxy reads at p (16 bytes): all ones where memory was written without a
/// fence, or after the instruction was issued.
void proxy_read(const Block& block, const char* p, void* out);
/// The asynchronous proxy writes.
void proxy_write(Block& block, char* p, const void* data, size_t bytes);

/// Waits until the kernels before this one have ended: replay() of emulator.h.
void wait_for_previous();

uint32_t cluster_rank();
void cluster_arrive();
void cluster_wait();
void grid_sync();
void* map_cluster_address(void* p, uint32_t rank);
template <typename T>
T* map_cluster(T* p, uint32_t rank) {
  return static_cast<T*>(map_cluster_address(const_cast<void*>(static_cast<const void*>(p)), rank));
}

}  // namespace quintet::emulated::simt::emulator
