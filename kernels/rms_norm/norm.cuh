#pragma once
// What norms that leave numbers (rms_norm.cu) and those that leave FP8 operands (rms_norm_fp8.cu) have in common: a row in registers
// and its root mean square, the shape of rows for a depth, operands.

#include "kernels/rms_norm/rows.cuh"
#include "kernels/vectors/operands_gpu.h"

namespace quintet::QT_GPU {

template <typename T>
struct NormArgs {
  const T* x;
  const T* y = nullptr;  // added to x, if any
  const float* scale;
  T* x_new = nullptr;
  T* out = nullptr;
  int64_t rows;
  int32_t depth;
  float eps;
  bool has_dropout = false;
  DropoutMask mask{};
};

QT_DEVICE float reciprocal_root(float sum_of_squares, int depth, float eps) {
  return 1.0f / sqrtf(sum_of_squares / static_cast<float>(depth) + eps);
}

/// A row, which may be a residual's sum and is then stored, as it lies in memory; returns what it is multiplied by.
template <typename S, bool kResidual>
QT_DEVICE float load_row(const NormArgs<typename S::Type>& a, int64_t row,
                         simt::Shared<float> workspace, RowTile<S>& tile) {
  using T = typename S::Type;
  load_tile<S>(a.x + row * a.depth, a.depth, tile);
  if constexpr (kResidual) {
    RowTile<S> added;
    load_tile<S>(a.y + row * a.depth, a.depth, added);
    for_row_units<S>(a.depth, [&](int u, int at) {
      float v[S::kLane], y[S::kLane];
      unpack_words<T>(tile.words[u], v);
      unpack_words<T>(added.words[u], y);
      const uint32_t bits = a.has_dropout ? a.mask.template bits<S::kLane>(row, at) : 0;
#pragma unroll
      for (int k = 0; k < S::kLane; ++k)
        v[k] += a.has_dropout ? dropped(a.mask.rule.keep, bits >> k & 1u, y[k]) : y[k];
      // The norm sees the sum as it is stored.
      pack_words<T>(v, tile.words[u]);
      store_words(a.x_new + row * a.depth + at, tile.words[u]);
    });
  }
  float squares = 0;
  for_row_units<S>(a.depth, [&](int u, int) {
    float v[S::kLane];
    unpack_words<T>(tile.words[u], v);
#pragma unroll
    for (int k = 0; k < S::kLane; ++k) squares += v[k] * v[k];
  });
  return reciprocal_root(row_sum<S>(squares, workspace), a.depth, a.eps);
}

/// Unit u of a row times r and the gains from element `at` on.
template <typename S>
QT_DEVICE void norm_unit(const NormArgs<typename S::Type>& a, const RowTile<S>& tile, int u, int at,
                         float r, float (&v)[S::kLane]) {
  float scale[S::kLane];
  unpack_words<typename S::Type>(tile.words[u], v);
  load<S::kLane>(a.scale + at, scale);
#pragma unroll
  for (int k = 0; k < S::kLane; ++k) v[k] = v[k] * r * scale[k];
}

/// Calls run(shape) with the RowShape of rows of `depth`; `vector`: addresses are multiples of 16 bytes. False: there is none.
template <typename T, bool kResidual, typename Run>
bool for_row_shape(int depth, bool vector, const Run& run) {
  const int units = depth / kLanes<T>;
  // A thread holds at most 32 elements.
  constexpr int kMost = 32 / kLanes<T>;
  if (!vector || depth % kLanes<T> != 0 || units > kBlockThreads * kMost) return false;
  if (units <= 32 * kMost / 4) {
    run(RowShape<T, 32, kMost / 4>{});
  } else if (units <= 32 * kMost / 2) {
    run(RowShape<T, 32, kMost / 2>{});
  } else if (units <= 32 * kMost) {
    run(RowShape<T, 32, kMost>{});
  } else if (!kResidual && sizeof(T) == 2 && units <= 32 * kMost * 2) {
    if constexpr (!kResidual && sizeof(T) == 2)
      run(RowShape<T, 32, kMost * 2>{});  // 64 elements a thread, still without a block's barriers
  } else if (units <= kBlockThreads * kMost / 4) {
    run(RowShape<T, kBlockThreads, kMost / 4>{});
  } else if (units <= kBlockThreads * kMost / 2) {
    run(RowShape<T, kBlockThreads, kMost / 2>{});
  } else {
    run(RowShape<T, kBlockThreads, kMost>{});
  }
  return true;
}

/// What both forms of an op have in common.
template <typename T>
NormArgs<T> norm_args(const char* op, const View& x, const View& scale, const Attrs& attrs) {
  return {.x = elements<T>(x, op, "x"),
          .scale = elements<float>(scale, op, "scale"),
          .rows = x.rows(),
          .depth = checked_depth(x.depth()),
          .eps = static_cast<float>(attrs.get_or<double>("eps", 1e-6))};
}

/// x + dropout(y) and its norm, which finish(args) says where to put and launches.
template <typename Finish>
void add_norm(const char* op, Views in, const View& x_new, const Attrs& attrs, Stream stream,
              const Finish& finish) {
  const int64_t n = in[0].elements();
  expect_shape(in[1].elements() == n && in[2].elements() == in[0].depth() && x_new.elements() == n,
               op, "...e, ...e, e -> ...e, ...e");
  if (n == 0) return;
  for_dtype(in[0], op, [&]<typename T>(T) {
    NormArgs<T> a = norm_args<T>(op, in[0], in[2], attrs);
    a.y = elements<T>(in[1], op, "y");
    a.x_new = elements<T>(x_new, op, "x_new");
    a.has_dropout = attrs.get_or<double>("rate", 0) != 0;
    const StoredDropoutMask made = a.has_dropout ? make_mask(op, in[1], attrs, stream)
                                                 : StoredDropoutMask{simt::Scratch(0, stream), {}};
    a.mask = made.mask;
    finish(a);
  });
}

}  // namespace quintet::QT_GPU
