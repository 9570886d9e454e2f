#include "kernels/cross_entropy/rows.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cross_entropy/rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {

using cross_entropy::RowGradient;
using cross_entropy::RowStatistics;

constexpr float kNever = -std::numeric_limits<float>::infinity();

/// Calls body(vector, first column) for the columns of a row; missing lanes of the last are `fill`.
template <class Body>
HWY_INLINE void for_vectors(const float* HWY_RESTRICT row, size_t columns, float fill,
                            const Body& body) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t j = 0;
  for (; j + lanes <= columns; j += lanes) body(hn::LoadU(d, row + j), j);
  if (j == columns) return;
  HWY_ALIGN float rest[hn::MaxLanes(d)];
  for (size_t i = 0; i < lanes; ++i) rest[i] = j + i < columns ? row[j + i] : fill;
  body(hn::Load(d, rest), j);
}

RowStatistics row_statistics(const float* HWY_RESTRICT row, size_t columns) {
  const hn::ScalableTag<float> d;
  auto largest = hn::Set(d, kNever);
  for_vectors(row, columns, kNever,
              [&](auto x, size_t) HWY_ATTR { largest = hn::Max(largest, x); });
  RowStatistics found{.largest = hn::GetLane(hn::MaxOfLanes(d, largest))};
  // With nothing above -infinity every exponential is 0, whatever the shift.
  const auto shift = hn::Set(d, found.largest == kNever ? 0.0F : found.largest);
  auto total = hn::Zero(d), sum = total;
  for_vectors(row, columns, kNever, [&](auto x, size_t) HWY_ATTR {
    total = hn::Add(total, exponential(d, hn::Sub(x, shift)));
  });
  for_vectors(row, columns, 0.0F, [&](auto x, size_t) HWY_ATTR { sum = hn::Add(sum, x); });
  found.exponentials = hn::GetLane(hn::SumOfLanes(d, total));
  found.sum = hn::GetLane(hn::SumOfLanes(d, sum));
  return found;
}

void statistics_of(const float* logits, int64_t rows, int64_t columns, RowStatistics* statistics) {
  for (int64_t i = 0; i < rows; ++i)
    statistics[i] = row_statistics(logits + i * columns, static_cast<size_t>(columns));
}

void row_gradient(float* HWY_RESTRICT row, size_t columns, const RowGradient& g) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto lse = hn::Set(d, g.lse), factor = hn::Set(d, g.softmax), minus = hn::Set(d, g.minus);
  for_vectors(row, columns, 0.0F, [&](auto x, size_t j) HWY_ATTR {
    const auto y = hn::MulSub(factor, exponential(d, hn::Sub(x, lse)), minus);
    if (j + lanes <= columns) return hn::StoreU(y, d, row + j);
    HWY_ALIGN float rest[hn::MaxLanes(d)];
    hn::Store(y, d, rest);
    for (size_t i = 0; j + i < columns; ++i) row[j + i] = rest[i];
  });
}

void gradient_of(float* logits, int64_t rows, int64_t columns, const RowGradient* gradients) {
  for (int64_t i = 0; i < rows; ++i)
    row_gradient(logits + i * columns, static_cast<size_t>(columns), gradients[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quintet {

HWY_EXPORT(statistics_of);
HWY_EXPORT(gradient_of);

void cross_entropy::block_statistics(const float* logits, int64_t rows, int64_t columns,
                                     RowStatistics* statistics) {
  HWY_DYNAMIC_DISPATCH(statistics_of)(logits, rows, columns, statistics);
}

void cross_entropy::block_gradient(float* logits, int64_t rows, int64_t columns,
                                   const RowGradient* gradients) {
  HWY_DYNAMIC_DISPATCH(gradient_of)(logits, rows, columns, gradients);
}

}  // namespace quintet
#endif
