#pragma once
// Tiles of bfloat16 that tensor copies bring and wgmma reads: boxes of 64 columns, rows of 128
// bytes in the 128-byte swizzle; a tile of 128 columns is two boxes. And the pipeline's barriers.

#include "kernels/attention/device_problem.cuh"

namespace quintet::QT_GPU::attention {

inline constexpr int kBoxColumns = 64, kRowBytes = 128;
inline constexpr int kGroup = 128;  // threads of a warpgroup

/// Descriptor of 16 columns (the terms of a product) of rows of a tile, `terms` in steps of 16: the
/// rows are the product's rows or columns.
template <int kRows>
__device__ inline uint64_t terms_in_columns(simt::Shared<bf16> tile, int row, int terms) {
  return simt::smem_descriptor(&tile[row * kBoxColumns], 16, 8 * kRowBytes, simt::Swizzle::k128) +
         static_cast<uint32_t>(terms / 4 * kRows * kRowBytes + terms % 4 * 32) / 16;
}
/// Descriptor of 16 rows (the terms of a product) from row 16 * terms on: all columns from box
/// `box` on are the product's columns (or rows).
template <int kRows>
__device__ inline uint64_t terms_in_rows(simt::Shared<bf16> tile, int terms, int box = 0) {
  return simt::smem_descriptor(&tile[box * kRows * kBoxColumns], kRows * kRowBytes, 8 * kRowBytes,
                               simt::Swizzle::k128) +
         static_cast<uint32_t>(terms * 16 * kRowBytes) / 16;
}

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

/// A position in a ring of `kStages` buffers and the parity of its barriers' phase.
template <int kStages>
struct Cursor {
  static_assert((kStages & (kStages - 1)) == 0);
  uint32_t count = 0;
  __device__ int stage() const { return static_cast<int>(count % kStages); }
  __device__ uint32_t parity() const { return count / kStages & 1U; }
  __device__ void advance() { ++count; }
};

}  // namespace quintet::QT_GPU::attention
