#pragma once
// What norms that leave numbers (rms_norm.cu) and those that leave FP8 operands (rms_norm_fp8.cu) have in common: a row in registers
// and its root mean square, operands.

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
template <typename S, bool kResidual, MaskBits kBits>
QT_DEVICE float load_row(const NormArgs<typename S::Type>& a, int64_t row,
                         simt::Shared<float> workspace, RowTile<S>& tile) {
  using T = typename S::Type;
  const int depth = S::depth(a.depth);
  load_tile<S>(a.x + row * depth, depth, tile);
  if constexpr (kResidual) {
    RowTile<S> added;
    load_tile<S>(a.y + row * depth, depth, added);
    const RowMask<S, kBits> mask(a.mask, row, depth);
    for_row_units<S>(depth, [&](int u, int at) {
      float v[S::kLane], y[S::kLane];
      unpack_words<T>(tile.words[u], v);
      unpack_words<T>(added.words[u], y);
      mask.drop(u, at, y);
#pragma unroll
      for (int k = 0; k < S::kLane; ++k) v[k] += y[k];
      // The norm sees the sum as it is stored.
      pack_words<T>(v, tile.words[u]);
      simt::store_16(a.x_new + row * depth + at, tile.words[u]);
    });
  }
  float squares = 0;
  for_row_units<S>(depth, [&](int u, int) {
    float v[S::kLane];
    unpack_words<T>(tile.words[u], v);
#pragma unroll
    for (int k = 0; k < S::kLane; ++k) squares += v[k] * v[k];
  });
  return reciprocal_root(row_sum<S>(squares, workspace), depth, a.eps);
}

/// Unit u of a row times r and the gains from element `at` on.
template <typename S>
QT_DEVICE void norm_unit(const NormArgs<typename S::Type>& a, const RowTile<S>& tile, int u, int at,
                         float r, float (&v)[S::kLane]) {
  float scale[S::kLane];
  unpack_words<typename S::Type>(tile.words[u], v);
  load_constant<S::kLane>(a.scale + at, scale);
#pragma unroll
  for (int k = 0; k < S::kLane; ++k) v[k] = v[k] * r * scale[k];
}

/// Calls run<S, kBits>() with the RowShape S and the mask's bits of the rows; false if there is no shape.
template <typename T, bool kResidual, typename Run>
bool for_norm_shape(const NormArgs<T>& a, bool vector, const Run& run) {
  // Without a residual a warp's thread holds up to 64 elements in 16 bits.
  constexpr int kMost = 32 / kLanes<T>, kWarpUnits = kResidual || sizeof(T) > 2 ? kMost : 2 * kMost;
  bool found = false;
  for_mask_bits(
      a.has_dropout, a.mask, [&]<MaskBits kBits>(std::integral_constant<MaskBits, kBits>) {
        if constexpr (kResidual || kBits == MaskBits::none)
          found = for_row_shape<T, kWarpUnits, kBits != MaskBits::each>(
              a.depth, vector, [&]<typename S>(S) { run.template operator()<S, kBits>(); });
      });
  return found;
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
