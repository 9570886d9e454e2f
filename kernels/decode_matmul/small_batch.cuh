#pragma once
// What both kernels of small-batch products share: rows of x in shared memory, weights as words, and what
// becomes of a sum. T: of x, W: of the weights.

#include "kernels/decode_matmul/small_batch.h"
#include "kernels/mlp/activate.cuh"
#include "kernels/simt/narrow.cuh"
#include "kernels/vectors/vectors.cuh"

namespace quintet::QT_GPU {

inline constexpr int kSmallBatchWarps = 8, kSmallBatchThreads = 32 * kSmallBatchWarps;
/// Elements of x that are in shared memory at a time, of all rows of a block together.
inline constexpr int kHeldElements = 16384;

/// A launch: the product and what the host worked out.
struct SmallBatchTask {
  SmallBatchMatmul p;
  int lanes;  // lanes side by side in a row of the weights: 1, 2 or 4; not for transposed ones
  int chunk;  // elements of each row of x in shared memory at a time
};

/// Weights that a lane reads at once: 16 bytes, 8 of those in a byte, whose sums are as many.
template <typename W>
inline constexpr int kWeights = sizeof(W) == 4 ? 4 : 8;
template <typename W>
using WeightWords = uint32_t[kWeights<W> * sizeof(W) / 4];

/// kWeights<W> elements of the weights from `p`, of which `left` exist.
template <typename W, bool kVector>
QT_DEVICE void fetch(const W* p, int64_t left, WeightWords<W>& words) {
  if (kVector && left > 0) return load_words(p, words);
  if constexpr (sizeof(W) == 1) {
#pragma unroll
    for (int i = 0; i < kWeights<W> / 4; ++i) words[i] = 0;
#pragma unroll
    for (int i = 0; i < kWeights<W>; ++i)
      if (!kVector && i < left)
        words[i / 4] |= uint32_t{reinterpret_cast<const uint8_t*>(p)[i]} << 8 * (i % 4);
  } else {
    float v[kWeights<W>];
#pragma unroll
    for (int i = 0; i < kWeights<W>; ++i) v[i] = !kVector && i < left ? simt::to_float(p[i]) : 0.0f;
    pack_words<W>(v, words);
  }
}

template <typename W>
QT_DEVICE void unpack_weights(const WeightWords<W>& words, float (&w)[kWeights<W>]) {
  if constexpr (sizeof(W) == 1) {
#pragma unroll
    for (int i = 0; i < kWeights<W> / 4; ++i) {
      float v[4];
      simt::widen<W>(words[i], v);
#pragma unroll
      for (int c = 0; c < 4; ++c) w[4 * i + c] = v[c];
    }
  } else {
    unpack_words<W>(words, w);
  }
}

/// What a column's sum is multiplied with.
template <typename W>
QT_DEVICE float column_scale(const float* scales, int64_t column, int64_t columns) {
  if constexpr (sizeof(W) == 1)
    return scales != nullptr && column < columns ? scales[column] : 1.0f;
  else
    return 1.0f;
}

/// A block's rows, as they come, and their matrix.
template <int kRows>
struct ConsecutiveRows {
  static constexpr size_t kShared = 0;  // bytes of shared memory that they need
  static constexpr bool kFew = false;   // whether there are usually fewer than kRows
  static constexpr int64_t matrix = 0;
  const int64_t first;
  const int count;

  __device__ explicit ConsecutiveRows(const SmallBatchMatmul& p)
      : first(int64_t{blockIdx.y} * kRows),
        count(p.rows - first < kRows ? static_cast<int>(p.rows - first) : kRows) {}
  __device__ int64_t from(int r) const { return first + r; }  // of x
  __device__ int64_t to(int r) const { return first + r; }    // of the result
  __device__ static float weight(int) { return 1; }           // of the result
};

/// Puts elements [begin, begin + count) of the block's rows of x, times the norm's scale, where
/// place(row, element) says, and adds their squares. Reads 16 bytes at a time, with kVector (takes_vectors()); thread i has
/// units i, i + kSmallBatchThreads, ... of every row, so a row's sum of squares does not depend on the others.
template <typename T, int kRows, bool kVector, class Rows, typename Place>
QT_DEVICE void stage_rows(const SmallBatchMatmul& p, const Rows& rows, int64_t begin, int count,
                          simt::Shared<float> staged, float (&squares)[kRows], const Place& place) {
  const T* x = static_cast<const T*>(p.x) + begin;
  constexpr int kUnit = kVector ? kLanes<T> : 1;
  // All loads of a turn are under way before the first is used.
  constexpr int kTogether = kVector ? (kRows <= 2 ? 2 : 1) : kRows == 4 ? 4 : 2;
  for (int base = static_cast<int>(threadIdx.x) * kUnit; base < count;
       base += kTogether * kSmallBatchThreads * kUnit) {
    float scale[kTogether][kUnit], v[kTogether][kRows][kUnit];
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      const int i = base + u * kSmallBatchThreads * kUnit;
#pragma unroll
      for (int c = 0; c < kUnit; ++c) scale[u][c] = 1;
      if (p.norm != nullptr && i < count) load<kUnit>(p.norm + begin + i, scale[u]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int c = 0; c < kUnit; ++c) v[u][r][c] = 0;
        if (r < rows.count && i < count) load<kUnit>(x + rows.from(r) * p.k + i, v[u][r]);
      }
    }
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      const int i = base + u * kSmallBatchThreads * kUnit;
#pragma unroll
      for (int c = 0; c < kUnit; ++c)
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          squares[r] += v[u][r][c] * v[u][r][c];
          if (i < count) staged[place(r, i + c)] = v[u][r][c] * scale[u][c];
        }
    }
  }
}
/// Whether `p` allows loads of 16 bytes: of x, and of rows of weights of `row` elements of W.
template <typename T, typename W>
bool takes_vectors(const SmallBatchMatmul& p, int64_t row) {
  return row % kWeights<W> == 0 && p.k % kLanes<T> == 0 &&
         are_aligned({p.x, p.norm, p.weights, p.gate});
}

/// Each warp's sums of squares: [warps, kRows].
template <int kRows>
QT_DEVICE void leave_squares(float (&squares)[kRows], simt::Shared<float> all) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float sum = warp_sum(squares[r]);
    if (threadIdx.x % 32 == 0) all[static_cast<int>(threadIdx.x) / 32 * kRows + r] = sum;
  }
}

/// What the norm divides row r by, as a factor.
template <int kRows>
QT_DEVICE float norm_factor(const SmallBatchMatmul& p, simt::Shared<float> squares, int r) {
  if (p.norm == nullptr) return 1;
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kSmallBatchWarps; ++w) sum += squares[w * kRows + r];
  return 1.0f / sqrtf(sum / static_cast<float>(p.k) + p.eps);
}

/// What is added to an output, if there is one.
template <typename T>
QT_DEVICE float residual_at(const SmallBatchMatmul& p, int64_t row, int64_t column) {
  if (p.residual == nullptr || row >= p.rows || column >= p.n) return 0;
  return simt::to_float(static_cast<const T*>(p.residual)[row * p.n + column]);
}

/// Makes an output of its products and writes it.
template <typename T>
QT_DEVICE void finish(const SmallBatchMatmul& p, int64_t row, int64_t column, float main,
                      float gate, float residual) {
  constexpr bool kFast = !std::is_same_v<T, float>;
  const int64_t at = row * p.n + column;
  float y = activation<kFast>(p.act0, main).value;
  if (p.gate != nullptr) y *= activation<kFast>(p.act1, gate).value;
  y = y * p.scale + residual;
  if (p.out_dtype == DType::f32)
    static_cast<float*>(p.out)[at] = y;
  else
    static_cast<T*>(p.out)[at] = simt::from_float<T>(y);
}

}  // namespace quintet::QT_GPU
