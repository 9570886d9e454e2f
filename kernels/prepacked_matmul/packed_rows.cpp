// Rows as products read them.

#include <algorithm>
#include <cmath>

#include "kernels/prepacked_matmul/prepacked_matmul.h"
#include "kernels/prepacked_matmul/row_pieces.h"
#include "kernels/prepacked_matmul/tile_input.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/prepacked_matmul/packed_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/prepacked_matmul/row_scale-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using V = hn::Vec<F>;
using I = hn::RebindToSigned<F>;
using VI = hn::Vec<I>;

/// x [k, rows] to quads [k/4, rows] and scales [rows]; k is a multiple of 4. Reads x up to a vector
/// beyond its end.
void quantize(const float* x, int64_t k, int64_t rows, uint32_t* quads, float* scales) {
  const F d;
  const I di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  // Of several vectors of rows the last overlaps the one before, where there is one.
  for (int64_t c = 0; c < rows; c += lanes) {
    const int64_t r = c > 0 ? std::min(c, rows - lanes) : 0;
    VI largest = hn::BitCast(di, hn::Set(d, 1e-30f));
    for (int64_t i = 0; i < k; ++i)
      largest = larger_magnitude(di, largest, hn::LoadU(d, x + i * rows + r));
    const V scale = hn::Mul(hn::BitCast(d, largest), hn::Set(d, 1.0f / 127));
    HWY_ALIGN float own[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(scale, d, own);
    std::copy_n(own, std::min(lanes, rows - r), scales + r);
    const V by = hn::Div(hn::Set(d, 1.0f), scale);
    for (int64_t i = 0; i < k; i += 4) {
      VI quad = hn::Zero(di);
      for (int64_t step = 3; step >= 0; --step) {
        const VI value = hn::NearestInt(hn::Mul(hn::LoadU(d, x + (i + step) * rows + r), by));
        quad = hn::Or(hn::ShiftLeft<8>(quad), hn::And(value, hn::Set(di, 0xff)));
      }
      // + 128 in each byte.
      quad = hn::Xor(quad, hn::Set(di, static_cast<int32_t>(0x80808080u)));
      HWY_ALIGN int32_t words[HWY_MAX_BYTES / sizeof(int32_t)];
      hn::Store(quad, di, words);
      std::copy_n(reinterpret_cast<const uint32_t*>(words), std::min(lanes, rows - r),
                  quads + i / 4 * rows + r);
    }
  }
}

void normalize(const float* x, int64_t k, const float* gain, float eps, float* out) {
  const F d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V s0 = hn::Zero(d), s1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= k; i += 2 * lanes) {
    const V a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + lanes);
    s0 = hn::MulAdd(a, a, s0);
    s1 = hn::MulAdd(b, b, s1);
  }
  float square = hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1)));
  for (; i < k; ++i) square += x[i] * x[i];
  const float scale = 1.0f / std::sqrt(square / static_cast<float>(k) + eps);
  const V by = hn::Set(d, scale);
  for (i = 0; i + lanes <= k; i += lanes)
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), by), hn::LoadU(d, gain + i)), d, out + i);
  for (; i < k; ++i) out[i] = x[i] * scale * gain[i];
}

/// In squares of 4 x 4; the last square of a row range overlaps the one before.
void transpose(const float* x, int64_t rows, int64_t k, int64_t stride, float* out,
               int64_t out_stride) {
  const int64_t whole = k / 4 * 4;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d;
  for (int64_t r = 0; rows >= 4 && r < rows; r += 4) {
    const int64_t first = std::min(r, rows - 4);
    const float* in = x + first * stride;
    for (int64_t i = 0; i < whole; i += 4) {
      const auto a = hn::LoadU(d, in + i), b = hn::LoadU(d, in + stride + i);
      const auto c = hn::LoadU(d, in + 2 * stride + i), e = hn::LoadU(d, in + 3 * stride + i);
      const auto ac0 = hn::InterleaveLower(d, a, c), ac1 = hn::InterleaveUpper(d, a, c);
      const auto be0 = hn::InterleaveLower(d, b, e), be1 = hn::InterleaveUpper(d, b, e);
      float* to = out + i * out_stride + first;
      hn::StoreU(hn::InterleaveLower(d, ac0, be0), d, to);
      hn::StoreU(hn::InterleaveUpper(d, ac0, be0), d, to + out_stride);
      hn::StoreU(hn::InterleaveLower(d, ac1, be1), d, to + 2 * out_stride);
      hn::StoreU(hn::InterleaveUpper(d, ac1, be1), d, to + 3 * out_stride);
    }
  }
  const int64_t begin = rows >= 4 ? whole : 0;
#else
  const int64_t begin = 0 * whole;
#endif
  for (int64_t i = begin; i < k; ++i)
    for (int64_t r = 0; r < rows; ++r) out[i * out_stride + r] = x[r * stride + i];
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/prepacked_matmul/transpose.h"

namespace quintet {

HWY_EXPORT(quantize);
HWY_EXPORT(normalize);
HWY_EXPORT(transpose);

void transpose(const float* x, int64_t rows, int64_t k, int64_t stride, float* out,
               int64_t out_stride) {
  HWY_DYNAMIC_DISPATCH(transpose)(x, rows, k, stride, out, out_stride);
}

PackedRows::PackedRows() : pieces_(std::make_unique<RowPieces>()) {}
PackedRows::~PackedRows() = default;

void PackedRows::set(const float* x, int64_t rows, int64_t k, int64_t stride) {
  x_ = x;
  rows_ = rows;
  k_ = k;
  stride_ = stride;
  in_columns_ = in_quads_ = 0;
  in_pieces_.reset();
}

void PackedRows::pack_normalized(const float* x, int64_t rows, int64_t k, const float* gain,
                                 float eps, const uint8_t* zeros) {
  copy_.resize(static_cast<size_t>(rows * k));
  for (int64_t r = 0; r < rows; ++r) {
    float* out = copy_.data() + r * k;
    HWY_DYNAMIC_DISPATCH(normalize)(x + r * k, k, gain, eps, out);
    if (zeros != nullptr && zeros[r] != 0) std::fill_n(out, k, 0.0F);
  }
  set(copy_.data(), rows, k, k);
}

void PackedRows::pack_gathered(const float* x, std::span<const int64_t> rows, int64_t k) {
  copy_.resize(rows.size() * static_cast<size_t>(k));
  for (float* out = copy_.data(); const int64_t row : rows) out = std::copy_n(x + row * k, k, out);
  set(copy_.data(), std::ssize(rows), k, k);
}

void PackedRows::unpack(float* out) const {
  for (int64_t r = 0; r < rows_; ++r) std::copy_n(x_ + r * stride_, k_, out + r * k_);
}

const float* PackedRows::columns(const RowGroups& groups) const {
  if (in_columns_ == groups.count) return columns_.data();
  in_columns_ = groups.count;
  const int64_t padded = padded_k(k_);
  // Vectors that hold the rows of a group may reach beyond its end.
  columns_.resize(static_cast<size_t>(rows_ * padded + kMostPanelWidth));
  for (int64_t g = 0; g < groups.count; ++g) {
    const int64_t first = groups.first(g), count = groups.first(g + 1) - first;
    float* out = columns_.data() + first * padded;
    transpose(x_ + first * stride_, count, k_, stride_, out, count);
    std::fill(out + k_ * count, out + padded * count, 0.0F);
  }
  return columns_.data();
}

const uint32_t* PackedRows::quads(const RowGroups& groups) const {
  if (in_quads_ == groups.count) return quads_.data();
  in_quads_ = groups.count;
  const int64_t padded = padded_k(k_);
  quads_.resize(static_cast<size_t>(rows_ * padded / 4));
  scales_.resize(static_cast<size_t>(rows_));
  const float* in = columns(groups);
  for (int64_t g = 0; g < groups.count; ++g) {
    const int64_t first = groups.first(g);
    HWY_DYNAMIC_DISPATCH(quantize)
    (in + first * padded, padded, groups.first(g + 1) - first, quads_.data() + first * padded / 4,
     scales_.data() + first);
  }
  return quads_.data();
}

const RowPieces& PackedRows::pieces(const RowGroups& groups, WeightType weights) const {
  if (in_pieces_ != weights) pieces_->make(x_, stride_, k_, groups, weights);
  in_pieces_ = weights;
  return *pieces_;
}

TileInput PackedRows::input(const RowGroups& groups, int64_t g, WeightType weights) const {
  const int64_t first = groups.first(g), padded = padded_k(k_);
  if (piece_form(weights, k_)) {
    const RowPieces& all = pieces(groups, weights);
    return {.pieces = all.group(g), .x_scales = all.scales(first)};
  }
  if (weights == WeightType::int8_dynamic)
    return {.quads = quads(groups) + first * padded / 4, .x_scales = scales_.data() + first};
  return {.x = columns(groups) + first * padded};
}

}  // namespace quintet
#endif
