#pragma once
// The kernel of weights [k, n]. A block owns a few columns of a matrix (all rows k of it) for up to 8
// rows of x. Its warps read different rows of the weights, 16 bytes a lane, several rows ahead; partial
// sums are joined over lanes, then over warps. The norm's factor is a number a row, so it is multiplied
// at the end and nobody waits for it.

#include "kernels/decode_matmul/small_batch.cuh"
#include "runtime/base/check.h"

namespace quintet::QT_GPU {

/// Sums of the lanes that have the same columns (lane % lanes): first each half of them gives the
/// other one half of its columns away. v[0] is then the sum of column share_of<kCount>(lane).
template <int kCount>
QT_DEVICE void share_sums(float (&v)[kCount], int lanes) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int count = kCount / 2, distance = 16; count > 0; count /= 2, distance /= 2) {
    const bool upper = (lane & distance) != 0;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const float given = upper ? v[i] : v[i + count], kept = upper ? v[i + count] : v[i];
      v[i] = kept + __shfl_xor_sync(kWholeWarp, given, distance);
    }
  }
  for (int distance = 16 / kCount; distance >= lanes; distance /= 2)
    v[0] += __shfl_xor_sync(kWholeWarp, v[0], distance);
}
template <int kCount>
QT_DEVICE int share_of(int lane) {
  int column = 0;
#pragma unroll
  for (int count = kCount / 2, distance = 16; count > 0; count /= 2, distance /= 2)
    column += (lane & distance) != 0 ? count : 0;
  return column;
}

template <class Rows, typename T, typename W, int kRows, int kMatrices, bool kVector>
__global__ void __launch_bounds__(kSmallBatchThreads)
    columns_kernel(const __grid_constant__ SmallBatchTask a) {
  // As many bytes under way whatever the weights are.
  constexpr int kLane = kWeights<W>, kAhead = (kMatrices == 2 ? 4 : 8) * (sizeof(W) == 1 ? 2 : 1);
  const SmallBatchMatmul& p = a.p;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int width = a.lanes * kLane, step = kSmallBatchThreads / a.lanes;
  const int64_t first_column = int64_t{blockIdx.x} * width;
  const int64_t column = first_column + lane % a.lanes * kLane;
  const int mine = static_cast<int>(threadIdx.x) / a.lanes;  // the row of the weights to begin with
  const Rows rows(p);
  if (rows.count == 0) return;
  constexpr size_t kFirst = Rows::kShared;
  auto staged = simt::shared<float>(kFirst, static_cast<size_t>(a.chunk) * kRows);
  auto partial =
      simt::shared<float>(kFirst + static_cast<size_t>(a.chunk) * kRows * sizeof(float),
                          static_cast<size_t>(kSmallBatchWarps * kMatrices * kRows * width));
  auto all_squares = simt::shared<float>(
      kFirst + (static_cast<size_t>(a.chunk) * kRows +
                static_cast<size_t>(kSmallBatchWarps * kMatrices * kRows * width)) *
                   sizeof(float),
      kSmallBatchWarps * kRows);

  WeightWords<W> words[kAhead][kMatrices];
  const auto fetch_row = [&](int64_t k, WeightWords<W>(&to)[kMatrices]) {
    const int64_t left = k < p.k ? p.n - column : 0;
#pragma unroll
    for (int m = 0; m < kMatrices; ++m)
      fetch<W, kVector>(static_cast<const W*>(m == 0 ? p.weights : p.gate) +
                            (rows.matrix * p.k + k) * p.n + column,
                        left, to[m]);
  };
#pragma unroll
  for (int u = 0; u < kAhead; ++u) fetch_row(mine + u * step, words[u]);
  simt::start_next();
  simt::wait_for_previous();

  // A thread's output, if it has one: a block has at most 8 rows of 32 columns.
  const int out_row = static_cast<int>(threadIdx.x) / width;
  const int out_column = static_cast<int>(threadIdx.x) % width;
  const bool has_output = out_row < rows.count && first_column + out_column < p.n;
  const int64_t to_row = has_output ? rows.to(out_row) : 0;
  const float residual = has_output ? residual_at<T>(p, to_row, first_column + out_column) : 0.0f;
  float scales[kMatrices];
#pragma unroll
  for (int m = 0; m < kMatrices; ++m)
    scales[m] =
        column_scale<W>(m == 0 ? p.weight_scales : p.gate_scales,
                        rows.matrix * p.n + first_column + out_column, (rows.matrix + 1) * p.n);
  float sums[kMatrices][kRows][kLane] = {}, squares[kRows] = {};
  for (int64_t begin = 0; begin < p.k; begin += a.chunk) {
    const int count = p.k - begin < a.chunk ? static_cast<int>(p.k - begin) : a.chunk;
    if (begin > 0) __syncthreads();
    stage_rows<T, kRows, kVector>(p, rows, begin, count, staged, squares,
                                  [](int r, int i) { return i * kRows + r; });
    __syncthreads();
    for (int base = 0; base < count; base += kAhead * step) {
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int i = base + u * step + mine;
        float w[kMatrices][kLane];
#pragma unroll
        for (int m = 0; m < kMatrices; ++m) unpack_weights<W>(words[u][m], w[m]);
        fetch_row(begin + i + kAhead * step, words[u]);
        if (i >= count) continue;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          if (Rows::kFew && r >= rows.count) break;
          const float x = staged[i * kRows + r];
#pragma unroll
          for (int m = 0; m < kMatrices; ++m)
#pragma unroll
            for (int c = 0; c < kLane; ++c) sums[m][r][c] += x * w[m][c];
        }
      }
    }
  }

  leave_squares(squares, all_squares);
  const int share = lane % a.lanes * kLane + share_of<kLane>(lane);
  const bool writes = lane % (32 / kLane) < a.lanes;
#pragma unroll
  for (int m = 0; m < kMatrices; ++m)
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      share_sums(sums[m][r], a.lanes);
      if (writes) partial[((warp * kMatrices + m) * kRows + r) * width + share] = sums[m][r][0];
    }
  __syncthreads();
  if (!has_output) return;
  const float factor = norm_factor<kRows>(p, all_squares, out_row) * rows.weight(out_row);
  float total[kMatrices] = {};
#pragma unroll
  for (int w = 0; w < kSmallBatchWarps; ++w)
#pragma unroll
    for (int m = 0; m < kMatrices; ++m)
      total[m] += partial[((w * kMatrices + m) * kRows + out_row) * width + out_column];
  finish<T>(p, to_row, first_column + out_column, factor * scales[0] * total[0],
            kMatrices == 2 ? factor * scales[kMatrices - 1] * total[kMatrices - 1] : 0.0f,
            residual);
}

/// f(T{}, W{}): the types of x and of the weights. float32 weights: of a router, whatever x is.
template <class F>
void for_operands(const SmallBatchMatmul& p, const F& f) {
  const auto with = [&]<typename T>(T x) {
    switch (p.weight_dtype) {
      case DType::i8:
        return f(x, int8_t{});
      case DType::u8:
        return f(x, simt::e4m3{});
      case DType::f32:
        return f(x, float{});
      default:
        QT_ASSERT(p.weight_dtype == DType::bf16);
        return f(x, bf16{});
    }
  };
  if (p.dtype == DType::f32) return with(float{});
  QT_ASSERT(p.dtype == DType::bf16);
  with(bf16{});
}

inline unsigned divided(int64_t a, int64_t b) { return static_cast<unsigned>((a + b - 1) / b); }

/// As narrow as makes a block for most multiprocessors of a large GPU, but no wider than 64 bytes.
inline int lanes_for(int64_t n, int lane) {
  for (int lanes = 4; lanes > 1; lanes /= 2)
    if (n >= int64_t{96} * lanes * lane) return lanes;
  return 1;
}

/// For weights that are not transposed; `rows`: blocks' worth of them.
template <class Rows, typename T, typename W, int kRows, bool kVector>
void launch_columns(const SmallBatchMatmul& p, int64_t rows, Stream stream) {
  const int64_t most = kHeldElements / kRows;
  const SmallBatchTask task{p, lanes_for(p.n, kWeights<W>),
                            static_cast<int>(p.k < most ? (p.k + 3) / 4 * 4 : most)};
  const int width = task.lanes * kWeights<W>;
  const size_t matrices = p.gate != nullptr ? 2 : 1;
  const size_t partials = kSmallBatchWarps * matrices * kRows * static_cast<size_t>(width);
  const simt::Launch how{.grid = dim3(divided(p.n, width), static_cast<unsigned>(rows)),
                         .block = kSmallBatchThreads,
                         .shared = Rows::kShared + (static_cast<size_t>(task.chunk) * kRows +
                                                    partials + kSmallBatchWarps * kRows) *
                                                       sizeof(float),
                         .stream = stream,
                         .early = true};
  if (p.gate != nullptr)
    simt::launch(columns_kernel<Rows, T, W, kRows, 2, kVector>, how, task);
  else
    simt::launch(columns_kernel<Rows, T, W, kRows, 1, kVector>, how, task);
}

}  // namespace quintet::QT_GPU
