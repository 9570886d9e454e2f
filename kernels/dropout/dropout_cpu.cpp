#include <cmath>
#include <vector>

#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/dropout/apply.h"
#include "kernels/dropout/dropout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dropout/dropout_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd-inl.h"
#include "kernels/random/threefry-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {

using Words = hn::RebindToUnsigned<Floats>;

// All ones where the element is kept.
HWY_INLINE hn::Vec<Words> keep_bits(const DropoutRule& rule, uint64_t index) {
  const Words d;
  const auto bits = hn::ShiftRight<9>(threefry_bits(d, rule.key, index));
  return hn::VecFromMask(d, hn::Lt(bits, hn::Set(d, rule.threshold)));
}

HWY_INLINE FloatVec dropped(const DropoutRule& rule, FloatVec x, hn::Vec<Words> bits) {
  const Floats d;
  return hn::And(hn::Div(x, hn::Set(d, rule.keep)), hn::BitCast(d, bits));
}

// n consecutive elements, the first of which has the number `index`. residual may be null.
void drop_elements(const DropoutRule& rule, uint64_t index, const float* residual, const float* x,
                   float* y, int64_t n) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    auto v = dropped(rule, hn::LoadU(d, x + i), keep_bits(rule, index + static_cast<uint64_t>(i)));
    if (residual != nullptr) v = hn::Add(hn::LoadU(d, residual + i), v);
    hn::StoreU(v, d, y + i);
  }
  if (i == n) return;
  auto v =
      dropped(rule, load_first(d, x + i, n - i), keep_bits(rule, index + static_cast<uint64_t>(i)));
  if (residual != nullptr) v = hn::Add(load_first(d, residual + i, n - i), v);
  store_first(d, v, y + i, n - i);
}

// The mask of n consecutive elements, as words of ones or zeros; room for a whole last vector.
void make_mask(const DropoutRule& rule, uint64_t index, uint32_t* mask, int64_t n) {
  const Words d;
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d)))
    hn::StoreU(keep_bits(rule, index + static_cast<uint64_t>(i)), d, mask + i);
}

// A row whose mask is made.
void drop_row(const DropoutRule& rule, const uint32_t* mask, const float* residual, const float* x,
              float* y, int64_t depth) {
  const Floats d;
  const Words dw;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= depth; i += lanes) {
    auto v = dropped(rule, hn::LoadU(d, x + i), hn::LoadU(dw, mask + i));
    if (residual != nullptr) v = hn::Add(hn::LoadU(d, residual + i), v);
    hn::StoreU(v, d, y + i);
  }
  for (; i < depth; ++i) {
    const float v = mask[i] != 0 ? x[i] / rule.keep : 0.0F;
    y[i] = residual != nullptr ? residual[i] + v : v;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quintet {
namespace {

HWY_EXPORT(drop_elements);
HWY_EXPORT(make_mask);
HWY_EXPORT(drop_row);

// Elements by which make_mask may pass the end: HWY_MAX_BYTES here is that of the baseline only.
constexpr size_t kWidestVector = 64;

// Numbers of the elements of a block in the whole array, row by row of the last axis.
struct RowNumbers {
  const View& x;
  bool shared;  // axis rank - 2 counts as one

  /// Number of the first element of local row `row` (leading axes flattened).
  uint64_t first(int64_t row) const {
    int64_t number = 0, stride = x.rank == 0 ? 1 : x.global[static_cast<size_t>(x.rank - 1)];
    if (x.rank > 0) number = x.origin[static_cast<size_t>(x.rank - 1)];
    for (int axis = x.rank - 2; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      const int64_t place = row % x.sizes[a];
      row /= x.sizes[a];
      if (shared && axis == x.rank - 2) continue;
      number += (x.origin[a] + place) * stride;
      stride *= x.global[a];
    }
    return static_cast<uint64_t>(number);
  }
  bool whole() const {
    return std::equal(x.sizes.begin(), x.sizes.begin() + x.rank, x.global.begin());
  }
};

DropoutRule rule_of(const char* op, const Attrs& attrs) {
  const double rate = attrs.get<double>("rate");
  QT_CHECK(rate >= 0 && rate <= 1, "{}: dropout rate {} must be in [0, 1]", op, rate);
  const auto word = [&](const char* name) {
    return static_cast<uint32_t>(attrs.get<int64_t>(name));
  };
  const auto keep = static_cast<float>(1.0 - rate);
  return {.key = {word("key0"), word("key1")},
          .threshold = static_cast<uint32_t>(std::ceil(static_cast<double>(keep) * 0x1p23)),
          .keep = keep};
}

bool is_shared(const char* op, const View& x, const Attrs& attrs) {
  const auto broadcast_dim = attrs.get_or<int64_t>("broadcast_dim", 0);
  QT_CHECK(broadcast_dim == 0 || (broadcast_dim == -2 && x.rank >= 2),
           "{}: broadcast_dim {} of an array of rank {}; it must be -2 (rank 2 or more) or 0", op,
           broadcast_dim, x.rank);
  return broadcast_dim == -2;
}

}  // namespace

namespace cpu {

RowDropout::RowDropout(const char* op, const View& x, const Attrs& attrs)
    : rule_(rule_of(op, attrs)), x_(x), shared_(is_shared(op, x, attrs)) {}

void RowDropout::operator()(int64_t row, const float* residual, const float* from, float* y) {
  const int64_t depth = x_.depth();
  const RowNumbers numbers{x_, shared_};
  if (!shared_)
    return HWY_DYNAMIC_DISPATCH(drop_elements)(rule_, numbers.first(row), residual, from, y, depth);
  if (const int64_t group = row / x_.size(-2); group != mask_of_) {
    mask_.resize(static_cast<size_t>(depth) + kWidestVector);
    HWY_DYNAMIC_DISPATCH(make_mask)(rule_, numbers.first(row), mask_.data(), depth);
    mask_of_ = group;
  }
  HWY_DYNAMIC_DISPATCH(drop_row)(rule_, mask_.data(), residual, from, y, depth);
}

void apply_dropout(const char* op, const View& x, const float* residual, float* y,
                   const Attrs& attrs) {
  const DropoutRule rule = rule_of(op, attrs);
  const float* from = x.data<const float>();
  const auto at = [residual](int64_t i) { return residual == nullptr ? nullptr : residual + i; };
  if (!is_shared(op, x, attrs) && RowNumbers{x, false}.whole())
    return parallel_for(x.elements(), kGrainElements, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(drop_elements)
      (rule, static_cast<uint64_t>(begin), at(begin), from + begin, y + begin, end - begin);
    });
  const RowDropout rows(op, x, attrs);
  const int64_t depth = x.depth();
  parallel_for(x.rows(), row_grain(depth), [&](int64_t begin, int64_t end) {
    RowDropout drop = rows;
    for (int64_t row = begin; row < end; ++row)
      drop(row, at(row * depth), from + row * depth, y + row * depth);
  });
}

}  // namespace cpu

void dropout_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  cpu::expect_shape(in[0].elements() == out[0].elements(), "dropout", "... -> ...");
  cpu::f32(in[0], "dropout", "x");
  cpu::apply_dropout("dropout", with_heads_apart(in[0], attrs), nullptr,
                     cpu::f32(out[0], "dropout", "y"), attrs);
}

}  // namespace quintet
#endif
