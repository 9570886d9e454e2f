#pragma once
// Tiles of a head's rows, as kernels/matmul/mma_tiles.cuh has them.

#include "kernels/attention/gpu/device_problem.cuh"
#include "kernels/matmul/mma_tiles.cuh"

namespace quintet::QT_GPU::attention {

/// Starts copying rows [first, first + kRows) of head `head` of x [b, length, heads * depth] with
/// kThreads threads; rows beyond the length and columns beyond the depth become 0.
template <int kDepth, int kRows, int kThreads>
__device__ void copy_rows(const Problem& p, const bf16* x, int length, int b, int head, int first,
                          simt::Shared<bf16> tile) {
  constexpr int kChunks = kDepth / 8;
  static_assert(kRows * kChunks % kThreads == 0);
#pragma unroll
  for (int n = 0; n < kRows * kChunks / kThreads; ++n) {
    const int i = n * kThreads + static_cast<int>(threadIdx.x);
    const int row = i / kChunks, chunk = i % kChunks;
    const bool is_valid = first + row < length && chunk * 8 < p.depth;
    const bf16* from = is_valid ? x + p.offset(length, b, first + row, head) + chunk * 8 : x;
    simt::cp_async_16(&tile[at_chunk<kDepth>(row, chunk)], from, is_valid);
  }
}

}  // namespace quintet::QT_GPU::attention
