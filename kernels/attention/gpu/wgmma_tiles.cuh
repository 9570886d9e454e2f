#pragma once
// Tensor copies of a head's rows, in the tiles of kernels/matmul/wgmma_tiles.cuh.

#include "kernels/attention/gpu/device_problem.cuh"
#include "kernels/matmul/wgmma_tiles.cuh"

namespace quintet::QT_GPU::attention {

/// Starts the copies of rows [first, first + kRows) of a head; columns and rows that are not there
/// become 0.
template <int kRows, int kDepth>
__device__ inline void load_tile(simt::Shared<bf16> tile, const simt::TensorMap& map, uint64_t* bar,
                                 int head, int first, int b) {
#pragma unroll
  for (int box = 0; box < kDepth / kBoxColumns; ++box)
    simt::tma_load_4d(&tile[box * kRows * kBoxColumns], map, bar, box * kBoxColumns, head, first,
                      b);
}

/// The heads of x [b, length, heads * depth] in boxes of `rows` rows and 64 columns of a head.
inline simt::TensorMap map_of(const Problem& p, const void* x, int length, int rows) {
  const int64_t row = static_cast<int64_t>(p.heads) * p.depth * 2;
  return simt::make_tensor_map(static_cast<const bf16*>(x), {p.depth, p.heads, length, p.batch},
                               {p.depth * 2, row, row * length}, {kBoxColumns, 1, rows, 1},
                               simt::Swizzle::k128);
}

}  // namespace quintet::QT_GPU::attention
