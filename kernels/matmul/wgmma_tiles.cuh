#pragma once
// Tiles of bfloat16 that tensor copies bring and wgmma reads: boxes of 64 columns, rows of 128
// bytes in the 128-byte swizzle; a tile of 128 columns is two boxes. And the pipeline's barriers.

#include "kernels/simt/simt.cuh"

namespace quintet::QT_GPU {

using simt::bf16;

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

/// A position in a ring of `kStages` buffers and the parity of its barriers' phase.
template <int kStages>
struct Cursor {
  static_assert((kStages & (kStages - 1)) == 0);
  uint32_t count = 0;
  __device__ int stage() const { return static_cast<int>(count % kStages); }
  __device__ uint32_t parity() const { return count / kStages & 1U; }
  __device__ void advance() { ++count; }
};

}  // namespace quintet::QT_GPU
