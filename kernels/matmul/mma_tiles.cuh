#pragma once
// Tiles of bfloat16 in shared memory for mma.sync: rows of kDepth elements, the 16-byte chunk c of
// row r stored at chunk c ^ (r % 8), so that the eight rows of an ldmatrix lie in different banks.

#include "kernels/simt/simt.cuh"

namespace quintet::QT_GPU {

using simt::bf16;

/// Element offset of chunk `chunk` of row `row`.
template <int kDepth>
__device__ inline int at_chunk(int row, int chunk) {
  return row * kDepth + ((chunk ^ (row & 7)) * 8);
}

/// The A operand of rows [row, row + 16) and columns [16 k, 16 k + 16).
template <int kDepth>
__device__ void load_a(simt::Shared<bf16> tile, int row, int k, uint32_t (&a)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  simt::ldmatrix_x4(a, &tile[at_chunk<kDepth>(row + lane % 16, 2 * k + lane / 16)]);
}
/// The same of the transpose of what is stored: operand row i is stored column `column` + i,
/// operand column is stored row 16 k + ...
template <int kDepth>
__device__ void load_a_transposed(simt::Shared<bf16> tile, int column, int k, uint32_t (&a)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = 16 * k + lane / 16 * 8 + lane % 8;
  simt::ldmatrix_x4_trans(a, &tile[at_chunk<kDepth>(row, column / 8 + lane / 8 % 2)]);
}
/// B operands of 16 stored rows, which are the product's columns [row, row + 16), and columns
/// [16 k, 16 k + 16), the terms of its sums: b[0], b[1] for the first eight, b[2], b[3] the others.
template <int kDepth>
__device__ void load_b(simt::Shared<bf16> tile, int row, int k, uint32_t (&b)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  simt::ldmatrix_x4(b,
                    &tile[at_chunk<kDepth>(row + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2)]);
}
/// The same where stored rows [16 k, 16 k + 16) are the terms and stored columns [column, column +
/// 16) the product's columns.
template <int kDepth>
__device__ void load_b_transposed(simt::Shared<bf16> tile, int column, int k, uint32_t (&b)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  simt::ldmatrix_x4_trans(b, &tile[at_chunk<kDepth>(16 * k + lane % 16, column / 8 + lane / 16)]);
}

/// sums of fragments 2 n and 2 n + 1 += a b.
template <int kCount>
__device__ void multiply_add(float (&sums)[kCount], int n, const uint32_t (&a)[4],
                             const uint32_t (&b)[4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float d[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) d[i] = sums[8 * n + 4 * half + i];
    const uint32_t pair[2] = {b[2 * half], b[2 * half + 1]};
    simt::mma_m16n8k16(d, a, pair, d, bf16{});
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[8 * n + 4 * half + i] = d[i];
  }
}

}  // namespace quintet::QT_GPU
