#pragma once
// Attention in float32 arithmetic for any head size up to 256, any length and alignment: the path
// of float32 operands, and of bfloat16 ones that the tensor-core kernels do not take.
// 256 threads as 16 x 16; a thread has rows ty + 16 i and columns tx + 16 c of each tile.

#include "kernels/attention/gpu/prepare.cuh"

namespace quintet::QT_GPU::attention {

inline constexpr int kGeneralThreads = 256;

/// out [b, q, h*d] of p's dtype and lse [b, h, q] (may be null). `p` was prepared with the bias diagonals as
/// they are.
void forward_general(const Prepared& p, void* out, float* lse, Stream stream);

/// Gradients of p's dtype; dtable may be null. `p` was prepared with the bias diagonals as they are, `s` with
/// unit 1.
void backward_general(const Prepared& p, const Statistics& s, const void* dout, void* dq, void* dk,
                      void* dv, float* dtable, Stream stream);

/// Copies rows [first, first + count) of head `head` of x [b, length, heads * depth] to tile, rows
/// `stride` floats apart; rows beyond the length are 0.
template <typename T>
__device__ void load_rows(const Problem& p, const T* x, int length, int b, int head, int first,
                          int count, simt::Shared<float> tile, int stride) {
  for (int i = static_cast<int>(threadIdx.x); i < count * p.depth; i += kGeneralThreads) {
    const int row = i / p.depth, c = i % p.depth;
    float value = 0;
    if (first + row < length) value = simt::to_float(x[p.offset(length, b, first + row, head) + c]);
    tile[row * stride + c] = value;
  }
}

/// sums[i][j] = <row ty + 16 i of x, row tx + 16 j of y>, both [kRows * 16, depth] in shared
/// memory.
template <int kRows>
__device__ void row_products(simt::Shared<float> x, simt::Shared<float> y, int stride, int depth,
                             float (&sums)[kRows][kRows]) {
  const int tx = static_cast<int>(threadIdx.x) % 16, ty = static_cast<int>(threadIdx.x) / 16;
#pragma unroll
  for (int i = 0; i < kRows; ++i)
#pragma unroll
    for (int j = 0; j < kRows; ++j) sums[i][j] = 0;
  for (int c = 0; c < depth; ++c) {
    float a[kRows], b[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      a[i] = x[(ty + 16 * i) * stride + c];
      b[i] = y[(tx + 16 * i) * stride + c];
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kRows; ++j) sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
  }
}

/// sums[i][c] += sum over n of w(n, ty + 16 i) * x[n][tx + 16 c]; w is [n, row] if kTransposed,
/// else [row, n], rows `w_stride` floats apart.
template <int kRows, int kColumns, bool kTransposed>
__device__ void accumulate(simt::Shared<float> w, int w_stride, simt::Shared<float> x, int stride,
                           int count, int depth, float (&sums)[kRows][kColumns]) {
  const int tx = static_cast<int>(threadIdx.x) % 16, ty = static_cast<int>(threadIdx.x) / 16;
  for (int n = 0; n < count; ++n) {
    float a[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = ty + 16 * i;
      a[i] = kTransposed ? w[n * w_stride + row] : w[row * w_stride + n];
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (tx + 16 * c >= depth) continue;
      const float b = x[n * stride + tx + 16 * c];
#pragma unroll
      for (int i = 0; i < kRows; ++i) sums[i][c] = fmaf(a[i], b, sums[i][c]);
    }
  }
}

}  // namespace quintet::QT_GPU::attention
