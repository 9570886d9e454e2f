#include "kernels/logits/logits.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/logits/logits.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "hwy/contrib/math/math-inl.h"
#include "kernels/random/threefry-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

float row_max(const float* x, size_t n) {
  const F d;
  const size_t lanes = hn::Lanes(d);
  auto m0 = hn::Set(d, kMinusInfinity), m1 = m0;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    m0 = hn::Max(m0, hn::LoadU(d, x + i));
    m1 = hn::Max(m1, hn::LoadU(d, x + i + lanes));
  }
  float best = hn::GetLane(hn::MaxOfLanes(d, hn::Max(m0, m1)));
  for (; i < n; ++i) best = std::max(best, x[i]);
  return best;
}

size_t first_equal(const float* x, size_t n, float value) {
  const F d;
  const size_t lanes = hn::Lanes(d);
  const auto wanted = hn::Set(d, value);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto at = hn::FindFirstTrue(d, hn::Eq(hn::LoadU(d, x + i), wanted));
    if (at >= 0) return i + static_cast<size_t>(at);
  }
  for (; i < n; ++i)
    if (x[i] == value) return i;
  return 0;
}

float sum_exp(const float* x, size_t n, float shift) {
  const F d;
  const size_t lanes = hn::Lanes(d);
  const auto offset = hn::Set(d, shift);
  auto sum = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    sum = hn::Add(sum, hn::Exp(d, hn::Sub(hn::LoadU(d, x + i), offset)));
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < n; ++i) total += std::exp(x[i] - shift);
  return total;
}

/// Appends the elements of x[begin, n) above the threshold to out until out holds `limit` or more;
/// returns where it stopped. out needs room for limit + 3 vectors.
size_t collect_above(const float* x, size_t begin, size_t n, float threshold, float* out,
                     size_t& count, size_t limit) {
  const F d;
  const size_t lanes = hn::Lanes(d);
  const auto above = hn::Set(d, threshold);
  size_t i = begin;
  for (; i + lanes <= n && count < limit; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    const auto mask = hn::Gt(v, above);
    if (HWY_UNLIKELY(!hn::AllFalse(d, mask))) count += hn::CompressStore(v, mask, d, out + count);
  }
  if (i + lanes <= n) return i;
  for (; i < n; ++i)
    if (x[i] > threshold) out[count++] = x[i];
  return n;
}

void find_at_least(const float* x, size_t n, float threshold, std::vector<int32_t>* out) {
  const F d;
  const size_t lanes = hn::Lanes(d);
  const auto least = hn::Set(d, threshold);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    if (HWY_LIKELY(hn::AllFalse(d, hn::Ge(hn::LoadU(d, x + i), least)))) continue;
    for (size_t j = i; j < i + lanes; ++j)
      if (x[j] >= threshold) out->push_back(static_cast<int32_t>(j));
  }
  for (; i < n; ++i)
    if (x[i] >= threshold) out->push_back(static_cast<int32_t>(i));
}

void divide_by(float* x, size_t n, float divisor) {
  const F d;
  const size_t lanes = hn::Lanes(d);
  const auto by = hn::Set(d, divisor);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Div(hn::LoadU(d, x + i), by), d, x + i);
  for (; i < n; ++i) x[i] /= divisor;
}

size_t draw(const float* x, size_t n, Key key, uint64_t first) {
  const F d;
  const hn::RebindToUnsigned<F> du;
  const hn::RebindToSigned<F> di;
  const size_t lanes = hn::Lanes(d);
  const auto tiny = hn::Set(d, std::numeric_limits<float>::min());
  auto best = hn::Set(d, kMinusInfinity);
  auto best_index = hn::Zero(di);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto u = hn::Add(unit_interval(du, threefry_bits(du, key, first + i)), tiny);
    const auto noise = hn::Neg(hn::Log(d, hn::Neg(hn::Log(d, u))));
    const auto score = hn::Add(noise, hn::LoadU(d, x + i));
    const auto better = hn::Gt(score, best);
    best = hn::IfThenElse(better, score, best);
    best_index = hn::IfThenElse(hn::RebindMask(di, better), hn::Iota(di, static_cast<int32_t>(i)),
                                best_index);
  }
  HWY_ALIGN float scores[HWY_MAX_BYTES / sizeof(float)];
  HWY_ALIGN int32_t indices[HWY_MAX_BYTES / sizeof(int32_t)];
  hn::Store(best, d, scores);
  hn::Store(best_index, di, indices);
  float top = kMinusInfinity;
  size_t chosen = 0;
  for (size_t lane = 0; lane < lanes; ++lane) {
    const auto index = static_cast<size_t>(indices[lane]);
    if (scores[lane] > top || (scores[lane] == top && index < chosen)) {
      top = scores[lane];
      chosen = index;
    }
  }
  for (; i < n; ++i) {
    const float score = gumbel_noise(key, first + i) + x[i];
    if (score > top) {
      top = score;
      chosen = i;
    }
  }
  return chosen;
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quintet {

HWY_EXPORT(row_max);
HWY_EXPORT(first_equal);
HWY_EXPORT(sum_exp);
HWY_EXPORT(collect_above);
HWY_EXPORT(find_at_least);
HWY_EXPORT(divide_by);
HWY_EXPORT(draw);

int64_t argmax(std::span<const float> row) {
  const float max = HWY_DYNAMIC_DISPATCH(row_max)(row.data(), row.size());
  return static_cast<int64_t>(HWY_DYNAMIC_DISPATCH(first_equal)(row.data(), row.size(), max));
}

RowSummary summarize(std::span<const float> row) {
  RowSummary s;
  s.max = HWY_DYNAMIC_DISPATCH(row_max)(row.data(), row.size());
  s.argmax = static_cast<int64_t>(HWY_DYNAMIC_DISPATCH(first_equal)(row.data(), row.size(), s.max));
  s.log_sum = std::log(HWY_DYNAMIC_DISPATCH(sum_exp)(row.data(), row.size(), s.max));
  return s;
}

float kth_largest(std::span<const float> row, int64_t k, std::vector<float>& scratch) {
  const auto wanted = static_cast<size_t>(k);
  const size_t limit = std::max<size_t>(2 * wanted, 256);
  constexpr size_t kMostLanes = 64;
  scratch.resize(limit + 3 * kMostLanes);
  float threshold = -std::numeric_limits<float>::infinity();
  size_t count = 0;
  for (size_t i = 0; i < row.size();) {
    i = HWY_DYNAMIC_DISPATCH(collect_above)(row.data(), i, row.size(), threshold, scratch.data(),
                                            count, limit);
    if (count < wanted) continue;
    // Keep the best `wanted` in front; anything not above the last of them changes nothing.
    const auto nth = scratch.begin() + static_cast<std::ptrdiff_t>(wanted - 1);
    std::nth_element(scratch.begin(), nth, scratch.begin() + static_cast<std::ptrdiff_t>(count),
                     std::greater<float>());
    threshold = *nth;
    count = wanted;
  }
  return count < wanted ? std::numeric_limits<float>::lowest() : threshold;
}

void indices_at_least(std::span<const float> row, float threshold, std::vector<int32_t>& out) {
  HWY_DYNAMIC_DISPATCH(find_at_least)(row.data(), row.size(), threshold, &out);
}

void divide(std::span<float> row, float divisor) {
  HWY_DYNAMIC_DISPATCH(divide_by)(row.data(), row.size(), divisor);
}

int64_t draw_categorical(std::span<const float> row, Key key, uint64_t first) {
  return static_cast<int64_t>(HWY_DYNAMIC_DISPATCH(draw)(row.data(), row.size(), key, first));
}

float gumbel_noise(Key key, uint64_t i) {
  const float u = random_uniform(random_bits(key, i)) + std::numeric_limits<float>::min();
  return -std::log(-std::log(u));
}

}  // namespace quintet
#endif
