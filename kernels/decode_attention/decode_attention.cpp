#include "kernels/decode_attention/decode_attention.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/decode_attention/decode_attention.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using V = hn::Vec<F>;

int64_t vector_lanes() { return static_cast<int64_t>(hn::Lanes(F())); }

/// Below any logit, yet finite: its exponential is zero and differences stay numbers.
constexpr float kMasked = -1e30f;

/// scores [padded] -> exp(scores - max) over [0, limit), zero behind; returns their sum.
float softmax_numerators(float* scores, int64_t limit, int64_t padded) {
  const F d;
  const int64_t lanes = vector_lanes();
  std::fill(scores + limit, scores + padded, kMasked);
  V most = hn::Load(d, scores);
  for (int64_t t = lanes; t < padded; t += lanes) most = hn::Max(most, hn::Load(d, scores + t));
  const V max = hn::MaxOfLanes(d, most);
  V sum = hn::Zero(d);
  for (int64_t t = 0; t < padded; t += lanes) {
    const V e = exponential(d, hn::Sub(hn::Load(d, scores + t), max));
    sum = hn::Add(sum, e);
    hn::Store(e, d, scores + t);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

void add_bias(float* scores, const float* bias, int64_t limit) {
  for (int64_t t = 0; t < limit; ++t) scores[t] += bias[t];
}

/// Writes the first head_dim of [depth] weighted sums, divided by the sum of the weights.
void store_out(const float* sums, float total, float* out, int64_t head_dim) {
  const float scale = 1.0f / total;
  for (int64_t i = 0; i < head_dim; ++i) out[i] = sums[i] * scale;
}

/// Asks the second-level cache for `lines` lines.
HWY_INLINE void fetch(const float* from, int64_t lines) {
  for (int64_t i = 0; i < lines; ++i) __builtin_prefetch(from + 16 * i, 0, 2);
}

/// scores [kRows, stride] of tokens [t, t + kVectors vectors). Reads ahead by `ahead` floats.
template <int kRows, int kVectors>
HWY_INLINE void score_tokens(const SharedQuery* rows, const SharedKeys& keys, int64_t head_dim,
                             int64_t t, float* scores, int64_t ahead) {
  const F d;
  const int64_t lanes = vector_lanes();
  V sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  const float* column = keys.keys + t;
  for (int64_t i = 0; i < head_dim; ++i, column += keys.stride) {
    fetch(column + ahead, kVectors);
    V key[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) key[v] = hn::Load(d, column + v * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V query = hn::Set(d, rows[r].query[i]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(query, key[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      hn::Store(sum[r][v], d, scores + r * keys.stride + t + v * lanes);
}

/// kRows queries over the same keys. scores: [kRows, stride]; sums: [kRows, depth]. While it reads,
/// it fetches what lies behind these keys: the next head's.
template <int kRows>
void attend_rows(const SharedQuery* rows, const SharedKeys& keys, int64_t head_dim, float* scores,
                 float* sums) {
  const F d;
  const int64_t lanes = vector_lanes(), depth = (head_dim + lanes - 1) / lanes * lanes;
  int64_t most = 0;
  for (int r = 0; r < kRows; ++r) most = std::max(most, rows[r].limit);
  const int64_t padded = (most + lanes - 1) / lanes * lanes;
  const int64_t ahead = head_dim * keys.stride + keys.length * depth;
  // Eight sums in flight hide the latency of their additions.
  constexpr int kVectors = kRows == 1 ? 8 : kRows == 2 ? 4 : 2;
  int64_t t = 0;
  for (; t + kVectors * lanes <= padded; t += kVectors * lanes)
    score_tokens<kRows, kVectors>(rows, keys, head_dim, t, scores, ahead);
  for (; t < padded; t += lanes) score_tokens<kRows, 1>(rows, keys, head_dim, t, scores, ahead);
  float total[kRows];
  for (int r = 0; r < kRows; ++r) {
    float* own = scores + r * keys.stride;
    if (rows[r].bias != nullptr) add_bias(own, rows[r].bias, rows[r].limit);
    total[r] = softmax_numerators(own, rows[r].limit, padded);
  }
  for (int64_t c = 0; c < depth; c += 2 * lanes) {
    const bool two = c + lanes < depth;
    V sum[kRows][2];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = hn::Zero(d);
    for (t = 0; t < most; ++t) {
      const float* value = keys.values + t * depth + c;
      fetch(value + ahead, two ? 2 : 1);
      const V v0 = hn::Load(d, value), v1 = two ? hn::Load(d, value + lanes) : v0;
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const V weight = hn::Set(d, scores[r * keys.stride + t]);
        sum[r][0] = hn::MulAdd(weight, v0, sum[r][0]);
        sum[r][1] = hn::MulAdd(weight, v1, sum[r][1]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      hn::Store(sum[r][0], d, sums + r * depth + c);
      if (two) hn::Store(sum[r][1], d, sums + r * depth + c + lanes);
    }
  }
  for (int r = 0; r < kRows; ++r) store_out(sums + r * depth, total[r], rows[r].out, head_dim);
}

void attend_some(const SharedQuery* rows, int64_t count, const SharedKeys& keys, int64_t head_dim,
                 float* scores, float* sums) {
  switch (count) {
    case 1:
      return attend_rows<1>(rows, keys, head_dim, scores, sums);
    case 2:
      return attend_rows<2>(rows, keys, head_dim, scores, sums);
    case 3:
      return attend_rows<3>(rows, keys, head_dim, scores, sums);
    default:
      return attend_rows<4>(rows, keys, head_dim, scores, sums);
  }
}

/// query: [depth], padded. scores: [limit padded]; sums: [depth].
void attend_cached(const float* query, float* out, const CachedHead& head, float* const* slots,
                   int64_t limit, const float* bias, int64_t head_dim, float* scores, float* sums) {
  const F d;
  const int64_t lanes = vector_lanes(), depth = (head_dim + lanes - 1) / lanes * lanes;
  // The addresses are irregular: keys are fetched a few tokens early, and values while the keys are
  // read.
  constexpr int64_t kEarly = 8;
  const int64_t lines = depth * 4 / 64;
  for (int64_t t = 0; t < limit; ++t) {
    fetch(slots[std::min(t + kEarly, limit - 1)] + head.keys, lines);
    fetch(slots[t] + head.values, lines);
    const float* key = slots[t] + head.keys;
    V sum = hn::Mul(hn::Load(d, query), hn::Load(d, key));
    for (int64_t c = lanes; c < depth; c += lanes)
      sum = hn::MulAdd(hn::Load(d, query + c), hn::Load(d, key + c), sum);
    scores[t] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
  if (bias != nullptr) add_bias(scores, bias, limit);
  const float total = softmax_numerators(scores, limit, (limit + lanes - 1) / lanes * lanes);
  for (int64_t c = 0; c < depth; c += 4 * lanes) {
    const int64_t vectors = std::min<int64_t>(4, (depth - c) / lanes);
    V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    for (int64_t t = 0; t < limit; ++t) {
      const float* value = slots[t] + head.values + c;
      const V weight = hn::Set(d, scores[t]);
      s0 = hn::MulAdd(weight, hn::Load(d, value), s0);
      if (vectors > 1) s1 = hn::MulAdd(weight, hn::Load(d, value + lanes), s1);
      if (vectors > 2) s2 = hn::MulAdd(weight, hn::Load(d, value + 2 * lanes), s2);
      if (vectors > 3) s3 = hn::MulAdd(weight, hn::Load(d, value + 3 * lanes), s3);
    }
    hn::Store(s0, d, sums + c);
    if (vectors > 1) hn::Store(s1, d, sums + c + lanes);
    if (vectors > 2) hn::Store(s2, d, sums + c + 2 * lanes);
    if (vectors > 3) hn::Store(s3, d, sums + c + 3 * lanes);
  }
  store_out(sums, total, out, head_dim);
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quintet {

HWY_EXPORT(vector_lanes);
HWY_EXPORT(attend_some);
HWY_EXPORT(attend_cached);

namespace {

constexpr uintptr_t kAlignment = 128;  // bytes, of any vector

/// `floats` aligned to vectors, in a buffer that only grows.
float* aligned_scratch(std::vector<float>& scratch, int64_t floats) {
  constexpr size_t kAlign = kAlignment / sizeof(float);
  const size_t wanted = static_cast<size_t>(floats) + kAlign;
  if (scratch.size() < wanted) scratch.resize(wanted);
  const auto address = reinterpret_cast<uintptr_t>(scratch.data());
  const uintptr_t aligned = (address + kAlignment - 1) / kAlignment * kAlignment;
  return scratch.data() + (aligned - address) / sizeof(float);
}

}  // namespace

int64_t padded_to_vectors(int64_t n) {
  static const int64_t lanes = HWY_DYNAMIC_DISPATCH(vector_lanes)();
  return (n + lanes - 1) / lanes * lanes;
}

SharedKeys SharedKeys::at(float* memory, int64_t length, int64_t head_dim) {
  SharedKeys k;
  k.length = length;
  k.stride = padded_to_vectors(length);
  k.keys = memory;
  k.values = memory + head_dim * k.stride;
  return k;
}

void SharedKeys::set(int64_t t, const float* key, const float* value, int64_t head_dim) const {
  for (int64_t i = 0; i < head_dim; ++i) keys[i * stride + t] = key[i];
  const int64_t depth = padded_to_vectors(head_dim);
  float* v = values + t * depth;
  std::copy_n(value, head_dim, v);
  std::fill(v + head_dim, v + depth, 0.0f);
}

void attend_shared(std::span<const SharedQuery> queries, const SharedKeys& keys, int64_t head_dim,
                   std::vector<float>& scratch) {
  constexpr int64_t kAtOnce = 4;
  const int64_t depth = padded_to_vectors(head_dim);
  float* scores = aligned_scratch(scratch, kAtOnce * (keys.stride + depth));
  const auto count = static_cast<int64_t>(queries.size());
  for (int64_t r = 0; r < count; r += kAtOnce) HWY_DYNAMIC_DISPATCH(attend_some)
  (queries.data() + r, std::min(kAtOnce, count - r), keys, head_dim, scores,
   scores + kAtOnce * keys.stride);
}

void attend_cache(const float* query, float* out, CachedHead head, std::span<float* const> slots,
                  const float* bias, int64_t head_dim, std::vector<float>& scratch) {
  const int64_t depth = padded_to_vectors(head_dim);
  const auto limit = static_cast<int64_t>(slots.size());
  const int64_t padded = padded_to_vectors(limit);
  float* scores = aligned_scratch(scratch, padded + 2 * depth);
  float* padded_query = scores + padded;
  std::copy_n(query, head_dim, padded_query);
  std::fill(padded_query + head_dim, padded_query + depth, 0.0f);
  HWY_DYNAMIC_DISPATCH(attend_cached)
  (padded_query, out, head, slots.data(), limit, bias, head_dim, scores, padded_query + depth);
}

void append_to_cache(CachedHead head, float* slot, const float* key, const float* value,
                     int64_t head_dim) {
  const int64_t depth = padded_to_vectors(head_dim);
  for (const auto& [to, source] :
       {std::pair{slot + head.keys, key}, std::pair{slot + head.values, value}}) {
    std::copy_n(source, head_dim, to);
    std::fill(to + head_dim, to + depth, 0.0f);
  }
}

}  // namespace quintet
#endif
