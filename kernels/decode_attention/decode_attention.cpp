#include "kernels/decode_attention/decode_attention.h"

#include <algorithm>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/decode_attention/decode_attention.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/float8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using V = hn::Vec<F>;
using I = hn::RebindToSigned<F>;

HWY_INLINE V load(const float* from) { return hn::Load(F(), from); }
HWY_INLINE V load(const int8_t* from) {
  const hn::Rebind<int8_t, F> bytes;
  return hn::ConvertTo(F(), hn::PromoteTo(I(), hn::LoadU(bytes, from)));
}
HWY_INLINE V load(const float8* from) {
  const hn::Rebind<uint8_t, F> bytes;
  const auto bits = hn::PromoteTo(I(), hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(from)));
  return float8_in_high_byte(I(), hn::ShiftLeft<24>(bits));
}

template <class T>
constexpr bool kScaled = !std::is_same_v<T, float>;

/// The scale of x [n], its largest magnitude / `largest`; NaN if an element is not finite.
float vector_scale(const float* x, int64_t n, float largest) {
  const F d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V most = hn::Set(d, kLeastCached), poison = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const V v = hn::LoadU(d, x + i);
    most = hn::Max(most, hn::Abs(v));
    poison = hn::MulAdd(v, hn::Zero(d), poison);
  }
  float end = hn::GetLane(hn::MaxOfLanes(d, most)), rest = hn::GetLane(hn::SumOfLanes(d, poison));
  for (; i < n; ++i) {
    end = std::max(end, std::abs(x[i]));
    rest += x[i] * 0.0f;
  }
  return end / largest + rest;
}

/// Numbers as integers of 8 bits or as the bits of float8, in the low bytes of lanes.
HWY_INLINE hn::Vec<I> rounded(V x, CacheType type) {
  const F d;
  const I di;
  if (type == CacheType::int8) return hn::NearestInt(x);
  const V a = hn::Abs(x);
  const auto bits = hn::BitCast(di, a);
  const auto odd = hn::And(hn::ShiftRight<20>(bits), hn::Set(di, 1));
  const auto normal =
      hn::Sub(hn::ShiftRight<20>(hn::Add(hn::Add(bits, odd), hn::Set(di, (1 << 19) - 1))),
              hn::Set(di, 120 << 3));
  const auto small = hn::NearestInt(hn::Mul(a, hn::Set(d, 0x1p9f)));  // steps of 2^-9
  const auto magnitude =
      hn::IfThenElse(hn::RebindMask(di, hn::Lt(a, hn::Set(d, 0x1p-6f))), small, normal);
  const auto sign = hn::And(hn::ShiftRight<24>(hn::BitCast(di, x)), hn::Set(di, 0x80));
  return hn::Or(magnitude, sign);
}

/// x [n] / scale to `out`, of whole vectors, zeros behind n.
void store_rounded(const float* x, int64_t n, float scale, CacheType type, uint8_t* out) {
  const F d;
  const I di;
  const hn::Rebind<uint8_t, F> bytes;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const V factor = hn::Set(d, 1.0f / scale);
  HWY_ALIGN float tail[64] = {};
  for (int64_t i = 0; i < n; i += lanes) {
    if (n - i < lanes) std::copy(x + i, x + n, tail);
    const V v = n - i < lanes ? hn::Load(d, tail) : hn::LoadU(d, x + i);
    const auto byte = hn::And(rounded(hn::Mul(v, factor), type), hn::Set(di, 0xff));
    hn::StoreU(hn::DemoteTo(bytes, byte), bytes, out + i);
  }
}

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
  const F d;
  const int64_t lanes = vector_lanes();
  int64_t t = 0;
  for (; t + lanes <= limit; t += lanes)
    hn::Store(hn::Add(hn::Load(d, scores + t), hn::LoadU(d, bias + t)), d, scores + t);
  for (; t < limit; ++t) scores[t] += bias[t];
}

/// Writes the first head_dim of [depth] weighted sums, divided by the sum of the weights.
void store_out(const float* sums, float total, float* out, int64_t head_dim) {
  const float scale = 1.0f / total;
  for (int64_t i = 0; i < head_dim; ++i) out[i] = sums[i] * scale;
}

/// Asks the second-level cache for `lines` lines.
HWY_INLINE void fetch(const void* from, int64_t lines) {
  for (int64_t i = 0; i < lines; ++i)
    __builtin_prefetch(static_cast<const std::byte*>(from) + 64 * i, 0, 2);
}

/// The weights of values, which have their scales in them then.
void scale_weights(float* scores, const float* scales, int64_t limit) {
  for (int64_t t = 0; t < limit; ++t) scores[t] *= scales[t];
}

/// scores [kRows, stride] of tokens [t, t + kVectors vectors).
template <class T, int kRows, int kVectors>
HWY_INLINE void score_tokens(const SharedQuery* rows, const SharedKeys& keys, int64_t head_dim,
                             int64_t t, float* scores) {
  const F d;
  const int64_t lanes = vector_lanes();
  V sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  const T* column = static_cast<const T*>(keys.keys) + t;
  for (int64_t i = 0; i < head_dim; ++i, column += keys.stride) {
    V key[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) key[v] = load(column + v * lanes);
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
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kScaled<T>)
        sum[r][v] = hn::Mul(sum[r][v], hn::LoadU(d, keys.key_scales + t + v * lanes));
      hn::Store(sum[r][v], d, scores + r * keys.stride + t + v * lanes);
    }
}

/// sums [kRows, depth] of kVectors vectors from c on: values of tokens [0, count), weighted by scores [kRows, stride].
template <class T, int kRows, int kVectors>
HWY_INLINE void weigh_values(const SharedKeys& keys, const float* scores, int64_t count,
                             int64_t depth, int64_t c, float* sums) {
  const F d;
  const int64_t lanes = vector_lanes();
  V sum[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  const T* value = static_cast<const T*>(keys.values) + c;
  for (int64_t t = 0; t < count; ++t, value += depth) {
    V vector[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) vector[v] = load(value + v * lanes);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const V weight = hn::Set(d, scores[r * keys.stride + t]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(weight, vector[v], sum[r][v]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) hn::Store(sum[r][v], d, sums + r * depth + c + v * lanes);
}

/// kRows queries over the same keys. scores: [kRows, stride]; sums: [kRows, depth].
template <class T, int kRows>
void attend_rows(const SharedQuery* rows, const SharedKeys& keys, int64_t head_dim, float* scores,
                 float* sums) {
  const int64_t lanes = vector_lanes(), depth = (head_dim + lanes - 1) / lanes * lanes;
  int64_t most = 0;
  for (int r = 0; r < kRows; ++r) most = std::max(most, rows[r].limit);
  const int64_t padded = (most + lanes - 1) / lanes * lanes;
  // Eight sums in flight hide the latency of their additions.
  constexpr int kVectors = kRows == 1 ? 8 : kRows == 2 ? 4 : 2;
  int64_t t = 0;
  for (; t + kVectors * lanes <= padded; t += kVectors * lanes)
    score_tokens<T, kRows, kVectors>(rows, keys, head_dim, t, scores);
  if constexpr (kVectors > 4)
    for (; t + 4 * lanes <= padded; t += 4 * lanes)
      score_tokens<T, kRows, 4>(rows, keys, head_dim, t, scores);
  if constexpr (kVectors > 2)
    for (; t + 2 * lanes <= padded; t += 2 * lanes)
      score_tokens<T, kRows, 2>(rows, keys, head_dim, t, scores);
  for (; t < padded; t += lanes) score_tokens<T, kRows, 1>(rows, keys, head_dim, t, scores);
  float total[kRows];
  for (int r = 0; r < kRows; ++r) {
    float* own = scores + r * keys.stride;
    if (rows[r].bias != nullptr) add_bias(own, rows[r].bias, rows[r].limit);
    total[r] = softmax_numerators(own, rows[r].limit, padded);
    if constexpr (kScaled<T>) scale_weights(own, keys.value_scales, rows[r].limit);
  }
  int64_t c = 0;
  if constexpr (kRows <= 2)
    for (; c + 4 * lanes <= depth; c += 4 * lanes)
      weigh_values<T, kRows, 4>(keys, scores, most, depth, c, sums);
  for (; c + 2 * lanes <= depth; c += 2 * lanes)
    weigh_values<T, kRows, 2>(keys, scores, most, depth, c, sums);
  if (c < depth) weigh_values<T, kRows, 1>(keys, scores, most, depth, c, sums);
  for (int r = 0; r < kRows; ++r) store_out(sums + r * depth, total[r], rows[r].out, head_dim);
}

template <class T>
void attend_some_of(const SharedQuery* rows, int64_t count, const SharedKeys& keys,
                    int64_t head_dim, float* scores, float* sums) {
  switch (count) {
    case 1:
      return attend_rows<T, 1>(rows, keys, head_dim, scores, sums);
    case 2:
      return attend_rows<T, 2>(rows, keys, head_dim, scores, sums);
    case 3:
      return attend_rows<T, 3>(rows, keys, head_dim, scores, sums);
    default:
      return attend_rows<T, 4>(rows, keys, head_dim, scores, sums);
  }
}

void attend_some(const SharedQuery* rows, int64_t count, const SharedKeys& keys, int64_t head_dim,
                 float* scores, float* sums) {
  switch (keys.type) {
    case CacheType::native:
      return attend_some_of<float>(rows, count, keys, head_dim, scores, sums);
    case CacheType::int8:
      return attend_some_of<int8_t>(rows, count, keys, head_dim, scores, sums);
    case CacheType::fp8:
      return attend_some_of<float8>(rows, count, keys, head_dim, scores, sums);
  }
}

/// A token's vector, which begins with its scale if it has one.
template <class T>
HWY_INLINE const T* elements(const float* cached) {
  return reinterpret_cast<const T*>(kScaled<T> ? cached + 1 : cached);
}

/// query: [depth], padded. scores: [limit padded]; sums: [depth].
template <class T>
void attend_cached_of(const float* query, float* out, const CachedHead& head, float* const* slots,
                      int64_t limit, const float* bias, int64_t head_dim, float* scores,
                      float* sums) {
  const F d;
  const int64_t lanes = vector_lanes(), depth = (head_dim + lanes - 1) / lanes * lanes;
  // The addresses are irregular: what the next head reads is fetched meanwhile.
  const int64_t lines = kScaled<T> ? depth / 64 + 1 : depth * 4 / 64;
  for (int64_t t = 0; t < limit; ++t) {
    fetch(slots[t] + head.next + head.keys, lines);
    fetch(slots[t] + head.next + head.values, lines);
    const T* key = elements<T>(slots[t] + head.keys);
    V sum = hn::Mul(hn::Load(d, query), load(key));
    for (int64_t c = lanes; c < depth; c += lanes)
      sum = hn::MulAdd(hn::Load(d, query + c), load(key + c), sum);
    scores[t] = hn::GetLane(hn::SumOfLanes(d, sum));
    if constexpr (kScaled<T>) scores[t] *= slots[t][head.keys];
  }
  if (bias != nullptr) add_bias(scores, bias, limit);
  const float total = softmax_numerators(scores, limit, (limit + lanes - 1) / lanes * lanes);
  if constexpr (kScaled<T>)
    for (int64_t t = 0; t < limit; ++t) scores[t] *= slots[t][head.values];
  for (int64_t c = 0; c < depth; c += 4 * lanes) {
    const int64_t vectors = std::min<int64_t>(4, (depth - c) / lanes);
    V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    for (int64_t t = 0; t < limit; ++t) {
      const T* value = elements<T>(slots[t] + head.values) + c;
      const V weight = hn::Set(d, scores[t]);
      s0 = hn::MulAdd(weight, load(value), s0);
      if (vectors > 1) s1 = hn::MulAdd(weight, load(value + lanes), s1);
      if (vectors > 2) s2 = hn::MulAdd(weight, load(value + 2 * lanes), s2);
      if (vectors > 3) s3 = hn::MulAdd(weight, load(value + 3 * lanes), s3);
    }
    hn::Store(s0, d, sums + c);
    if (vectors > 1) hn::Store(s1, d, sums + c + lanes);
    if (vectors > 2) hn::Store(s2, d, sums + c + 2 * lanes);
    if (vectors > 3) hn::Store(s3, d, sums + c + 3 * lanes);
  }
  store_out(sums, total, out, head_dim);
}

void attend_cached(const float* query, float* out, const CachedHead& head, float* const* slots,
                   int64_t limit, const float* bias, int64_t head_dim, float* scores, float* sums) {
  switch (head.type) {
    case CacheType::native:
      return attend_cached_of<float>(query, out, head, slots, limit, bias, head_dim, scores, sums);
    case CacheType::int8:
      return attend_cached_of<int8_t>(query, out, head, slots, limit, bias, head_dim, scores, sums);
    case CacheType::fp8:
      return attend_cached_of<float8>(query, out, head, slots, limit, bias, head_dim, scores, sums);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quintet {

HWY_EXPORT(vector_lanes);
HWY_EXPORT(attend_some);
HWY_EXPORT(attend_cached);
HWY_EXPORT(vector_scale);
HWY_EXPORT(store_rounded);

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

float scale_of(const float* x, int64_t n, CacheType type) {
  return HWY_DYNAMIC_DISPATCH(vector_scale)(x, n, largest_of(type));
}
void store_in_bytes(const float* x, int64_t n, float scale, CacheType type, void* out) {
  HWY_DYNAMIC_DISPATCH(store_rounded)(x, n, scale, type, static_cast<uint8_t*>(out));
}

}  // namespace

int64_t padded_to_vectors(int64_t n) {
  static const int64_t lanes = HWY_DYNAMIC_DISPATCH(vector_lanes)();
  return (n + lanes - 1) / lanes * lanes;
}

int64_t cached_floats(int64_t head_dim, CacheType type) {
  const int64_t depth = padded_to_vectors(head_dim);
  return type == CacheType::native ? depth : 1 + (depth + 3) / 4;
}

int64_t SharedKeys::floats(int64_t length, int64_t head_dim, CacheType type) {
  const int64_t stride = padded_to_vectors(length),
                elements = head_dim * stride + length * padded_to_vectors(head_dim);
  return type == CacheType::native ? elements : padded_to_vectors(2 * stride + (elements + 3) / 4);
}

SharedKeys SharedKeys::at(float* memory, int64_t length, int64_t head_dim, CacheType type) {
  SharedKeys k{.type = type, .length = length, .stride = padded_to_vectors(length)};
  if (type == CacheType::native) {
    k.keys = memory;
    k.values = memory + head_dim * k.stride;
    return k;
  }
  k.key_scales = memory;
  k.value_scales = memory + k.stride;
  k.keys = memory + 2 * k.stride;
  k.values = static_cast<std::byte*>(k.keys) + head_dim * k.stride;
  return k;
}

void SharedKeys::set(int64_t t, const float* key, const float* value, int64_t head_dim) const {
  const int64_t depth = padded_to_vectors(head_dim);
  if (type == CacheType::native) {
    for (int64_t i = 0; i < head_dim; ++i) static_cast<float*>(keys)[i * stride + t] = key[i];
    float* v = static_cast<float*>(values) + t * depth;
    std::copy_n(value, head_dim, v);
    std::fill(v + head_dim, v + depth, 0.0f);
    return;
  }
  key_scales[t] = scale_of(key, head_dim, type);
  value_scales[t] = scale_of(value, head_dim, type);
  store_in_bytes(value, head_dim, value_scales[t], type,
                 static_cast<std::byte*>(values) + t * depth);
  constexpr int64_t kBlock = 64;  // whole vectors
  std::byte block[kBlock];
  for (int64_t first = 0; first < head_dim; first += kBlock) {
    const int64_t count = std::min(kBlock, head_dim - first);
    store_in_bytes(key + first, count, key_scales[t], type, block);
    for (int64_t i = 0; i < count; ++i)
      static_cast<std::byte*>(keys)[(first + i) * stride + t] = block[i];
  }
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
    if (head.type != CacheType::native) {
      *to = scale_of(source, head_dim, head.type);
      store_in_bytes(source, head_dim, *to, head.type, to + 1);
      continue;
    }
    std::copy_n(source, head_dim, to);
    std::fill(to + head_dim, to + depth, 0.0f);
  }
}

}  // namespace quintet
#endif
