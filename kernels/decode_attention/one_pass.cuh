#pragma once
// One pass over keys and values: a few lanes hold a key and a value of a token in 16-byte parts,
// each lane keeps its part of the weighted sum; lanes and warps are joined at the end. Where the
// tokens stand is the business of the kernels that include this.

#include "kernels/decode_attention/decode_rows.h"
#include "kernels/simt/narrow.cuh"
#include "kernels/vectors/vectors.cuh"
#include "runtime/base/check.h"

namespace quintet::QT_GPU {

inline constexpr int kWarps = 4, kThreads = 32 * kWarps;
inline constexpr float kLog2e = 1.44269504f;
inline constexpr float kLowest = -1e30f;  // below any logit, yet differences stay numbers

/// Largest logit (base 2), sum and weighted values of some tokens for kQueries rows.
template <int kQueries, int kLane>
struct Running {
  float largest[kQueries], total[kQueries], sums[kQueries][kLane];

  __device__ void start() {
#pragma unroll
    for (int r = 0; r < kQueries; ++r) {
      largest[r] = kLowest, total[r] = 0;
#pragma unroll
      for (int i = 0; i < kLane; ++i) sums[r][i] = 0;
    }
  }
  /// The tokens of the lanes `distance` away count too.
  __device__ void join_lanes(int distance) {
#pragma unroll
    for (int r = 0; r < kQueries; ++r) {
      const float other = __shfl_xor_sync(kWholeWarp, largest[r], distance);
      const float most = fmaxf(largest[r], other);
      const float mine = simt::exp2_approx(largest[r] - most);
      const float theirs = simt::exp2_approx(other - most);
      total[r] = total[r] * mine + __shfl_xor_sync(kWholeWarp, total[r], distance) * theirs;
#pragma unroll
      for (int i = 0; i < kLane; ++i)
        sums[r][i] = sums[r][i] * mine + __shfl_xor_sync(kWholeWarp, sums[r][i], distance) * theirs;
      largest[r] = most;
    }
  }
};

/// kLane elements of a vector of head_dim, from element `first`; zeros behind its end.
template <bool kVector, int kLane, typename T>
QT_DEVICE void load_part(const T* p, int first, int head_dim, float (&v)[kLane]) {
  if constexpr (kVector) {
    if (first < head_dim) return load<kLane>(p + first, v);
#pragma unroll
    for (int i = 0; i < kLane; ++i) v[i] = 0;
  } else {
#pragma unroll
    for (int i = 0; i < kLane; ++i)
      v[i] = first + i < head_dim ? simt::to_float(p[first + i]) : 0.0f;
  }
}

/// A lane's part of a key or of a value as memory has it (but floats of sizes that are no whole vectors), with the scale of
/// one in bytes: what may be under way while the kernel waits.
template <typename T, bool kVector, bool kBytes>
struct CachedPart {
  static constexpr int kLane = kLanes<T>;
  uint32_t words[kBytes ? kLane / 4 : kVector ? 4 : kLane];
  float scale;

  __device__ void clear() {
    scale = 0;
#pragma unroll
    for (uint32_t& word : words) word = 0;
  }
  /// From element `first` on of vector `at`, which element `at` begins if they are no bytes.
  __device__ void load(const void* vectors, const float* scales, int64_t at, int first,
                       int head_dim) {
    clear();
    if constexpr (kBytes) {
      const uint8_t* p = static_cast<const uint8_t*>(vectors) + at * head_dim + first;
      scale = scales[at];
      if constexpr (kVector) {
        if (first < head_dim) load_words(p, words);
      } else {
#pragma unroll
        for (int i = 0; i < kLane; ++i)
          if (first + i < head_dim) words[i / 4] |= uint32_t{p[i]} << 8 * (i % 4);
      }
    } else {
      const T* p = static_cast<const T*>(vectors) + at + first;
      if constexpr (kVector) {
        if (first < head_dim) load_words(p, words);
      } else {
#pragma unroll
        for (int i = 0; i < kLane; ++i)
          if (first + i < head_dim) words[i] = __float_as_uint(simt::to_float(p[i]));
      }
    }
  }
  /// Without the scale.
  __device__ void unpack(CacheType type, float (&v)[kLane]) const {
    if constexpr (kBytes) {
#pragma unroll
      for (int w = 0; w < kLane / 4; ++w) {
        float four[4];
        if (type == CacheType::int8)
          simt::widen<int8_t>(words[w], four);
        else
          simt::widen<simt::e4m3>(words[w], four);
#pragma unroll
        for (int i = 0; i < 4; ++i) v[4 * w + i] = four[i];
      }
    } else if constexpr (kVector) {
      unpack_words<T>(words, v);
    } else {
#pragma unroll
      for (int i = 0; i < kLane; ++i) v[i] = __uint_as_float(words[i]);
    }
  }
};

/// The tokens that a block handles in a turn, from `base` on: keys and values of each lane, all under way together.
template <typename T, int kLanesPerKey, bool kVector, bool kBytes>
struct Turn {
  static constexpr int kGroups = 32 / kLanesPerKey, kTogether = 4,
                       kTokens = kTogether * kWarps * kGroups;
  CachedPart<T, kVector, kBytes> key[kTogether], value[kTogether];

  __device__ static int token(int base, int u) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    return base + (u * kWarps + warp) * kGroups + lane / kLanesPerKey;
  }
  __device__ void clear() {
#pragma unroll
    for (int u = 0; u < kTogether; ++u) key[u].clear(), value[u].clear();
  }
  /// Those of [low, high); the others stay.
  template <typename Tokens>
  __device__ void load(const Tokens& tokens, const DecodeCache& cache, int base, int low, int high,
                       int head_dim) {
    const int first = static_cast<int>(threadIdx.x) % kLanesPerKey * kLanes<T>;
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      const int t = token(base, u);
      if (t < low || t >= high) continue;
      const int64_t at = tokens.offset(t);
      key[u].load(cache.keys, cache.key_scales, at, first, head_dim);
      value[u].load(cache.values, cache.value_scales, at, first, head_dim);
    }
  }
};

/// A number that is not above largest_of(type) as its byte.
QT_DEVICE uint8_t rounded_byte(float x, CacheType type) {
  if (type == CacheType::int8) return static_cast<uint8_t>(__float2int_rn(x));
  const uint32_t bits = __float_as_uint(x), magnitude = bits & 0x7fffffffu;
  const uint32_t normal = ((magnitude + (magnitude >> 20 & 1) + 0x7ffffu) >> 20) - (120u << 3);
  const auto small = static_cast<uint32_t>(__float2int_rn(fabsf(x) * 512.0f));  // steps of 2^-9
  return static_cast<uint8_t>((bits >> 24 & 0x80u) | (fabsf(x) < 0x1p-6f ? small : normal));
}

/// A vector to a cache in bytes with its scale, by one warp.
template <typename T>
QT_DEVICE void store_in_bytes(const T* from, int head_dim, CacheType type, uint8_t* to,
                              float* scale) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float most = kLeastCached, poison = 0;
  for (int i = lane; i < head_dim; i += 32) {
    const float x = simt::to_float(from[i]);
    most = fmaxf(most, fabsf(x));
    poison += x * 0.0f;  // NaN of an infinity
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    most = fmaxf(most, __shfl_xor_sync(kWholeWarp, most, distance));
    poison += __shfl_xor_sync(kWholeWarp, poison, distance);
  }
  const float unit = most / largest_of(type), factor = 1.0f / unit;
  if (lane == 0) *scale = unit + poison;
  for (int i = lane; i < head_dim; i += 32)
    to[i] = poison == 0 ? rounded_byte(simt::to_float(from[i]) * factor, type) : 0;
}

/// A new token's key and value, by the block's threads, which see them afterwards.
template <typename T, bool kBytes>
QT_DEVICE void append(const DecodeCache& cache, int64_t at, const T* key, const T* value,
                      int head_dim) {
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (kBytes) {
    if (thread < 32)
      store_in_bytes(key, head_dim, cache.type, static_cast<uint8_t*>(cache.keys) + at * head_dim,
                     cache.key_scales + at);
    else if (thread < 64)
      store_in_bytes(value, head_dim, cache.type,
                     static_cast<uint8_t*>(cache.values) + at * head_dim, cache.value_scales + at);
  } else {
    for (int i = thread; i < head_dim; i += kThreads)
      static_cast<T*>(cache.keys)[at + i] = key[i],
                                       static_cast<T*>(cache.values)[at + i] = value[i];
  }
  __syncthreads();
}

/// Tokens [begin, end) of a chunk, shared out among the block's groups of lanes. `turn` has those of the first turn.
template <typename T, int kLanesPerKey, int kQueries, bool kVector, bool kBytes, typename Tokens>
QT_DEVICE void attend_tokens(const Tokens& tokens, const DecodeCache& cache, int begin, int end,
                             int head_dim, const float (&query)[kQueries][kLanes<T>],
                             Turn<T, kLanesPerKey, kVector, kBytes>& turn,
                             Running<kQueries, kLanes<T>>& running) {
  constexpr int kLane = kLanes<T>, kTogether = turn.kTogether;
  for (int base = begin; base < end; base += turn.kTokens) {
    if (base > begin) {
      turn.clear();
      turn.load(tokens, cache, base, base, end, head_dim);
    }
    float scores[kTogether][kQueries];
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      const int token = turn.token(base, u);
      const float bias = token < end ? tokens.bias(token) : -INFINITY;
      float key[kLane];
      turn.key[u].unpack(cache.type, key);
#pragma unroll
      for (int r = 0; r < kQueries; ++r) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < kLane; ++i) sum += query[r][i] * key[i];
#pragma unroll
        for (int distance = kLanesPerKey / 2; distance > 0; distance /= 2)
          sum += __shfl_xor_sync(kWholeWarp, sum, distance);
        if constexpr (kBytes) sum *= turn.key[u].scale;
        scores[u][r] = sum + bias;
      }
    }
    float value[kTogether][kLane];
#pragma unroll
    for (int u = 0; u < kTogether; ++u) turn.value[u].unpack(cache.type, value[u]);
#pragma unroll
    for (int r = 0; r < kQueries; ++r) {
      float most = running.largest[r];
#pragma unroll
      for (int u = 0; u < kTogether; ++u) most = fmaxf(most, scores[u][r]);
      const float rescale = simt::exp2_approx(running.largest[r] - most);
      running.largest[r] = most;
      running.total[r] *= rescale;
#pragma unroll
      for (int i = 0; i < kLane; ++i) running.sums[r][i] *= rescale;
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        const float weight = simt::exp2_approx(scores[u][r] - most);
        running.total[r] += weight;
        const float share = kBytes ? weight * turn.value[u].scale : weight;
#pragma unroll
        for (int i = 0; i < kLane; ++i) running.sums[r][i] += share * value[u][i];
      }
    }
  }
}

/// Joins lanes and warps, and writes results, or, of one chunk of several, partial sums.
template <typename T, int kLanesPerKey, int kQueries>
QT_DEVICE void finish_block(Running<kQueries, kLanes<T>>& running, int queries, int head_dim,
                            T* out, int64_t out_stride, float* partial) {
  constexpr int kLane = kLanes<T>, kDepth = kLanesPerKey * kLane;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int distance = kLanesPerKey; distance < 32; distance *= 2) running.join_lanes(distance);
  auto heads = simt::shared<float>(0, kWarps * kQueries * 2);
  auto sums =
      simt::shared<float>(sizeof(float) * kWarps * kQueries * 2, kWarps * kQueries * kDepth);
  if (lane < kLanesPerKey) {
#pragma unroll
    for (int r = 0; r < kQueries; ++r) {
      if (lane == 0) {
        heads[(warp * kQueries + r) * 2] = running.largest[r];
        heads[(warp * kQueries + r) * 2 + 1] = running.total[r];
      }
#pragma unroll
      for (int i = 0; i < kLane; ++i)
        sums[(warp * kQueries + r) * kDepth + lane * kLane + i] = running.sums[r][i];
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < queries * kDepth; i += kThreads) {
    const int r = i / kDepth, d = i % kDepth;
    if (d >= head_dim) continue;
    float most = kLowest, total = 0, sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) most = fmaxf(most, float(heads[(w * kQueries + r) * 2]));
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float share = simt::exp2_approx(float(heads[(w * kQueries + r) * 2]) - most);
      total += share * float(heads[(w * kQueries + r) * 2 + 1]);
      sum += share * float(sums[(w * kQueries + r) * kDepth + d]);
    }
    if (partial == nullptr) {
      out[r * out_stride + d] = simt::from_float<T>(sum / total);
    } else {
      float* mine = partial + static_cast<int64_t>(r) * (2 + head_dim);
      if (d == 0) mine[0] = most, mine[1] = total;
      mine[2 + d] = sum;
    }
  }
}

template <typename T, int kLanesPerKey, int kQueries, bool kVector>
QT_DEVICE void load_queries(const T* query, int64_t stride, int queries, int head_dim,
                            float (&parts)[kQueries][kLanes<T>]) {
  const int first = static_cast<int>(threadIdx.x) % kLanesPerKey * kLanes<T>;
#pragma unroll
  for (int r = 0; r < kQueries; ++r) {
    load_part<kVector>(query + (r < queries ? r : 0) * stride, first, head_dim, parts[r]);
#pragma unroll
    for (float& x : parts[r]) x *= kLog2e;
  }
}

template <typename T>
inline bool takes_vectors(const DecodeRows& rows, const DecodeCache& cache, int64_t key_stride,
                          std::initializer_list<const void*> more) {
  constexpr int64_t kLane = kLanes<T>;
  for (int64_t n : {rows.head_dim, rows.query_stride, key_stride, cache.sequence_stride,
                    cache.head_stride, cache.token_stride})
    if (n % kLane != 0) return false;
  return are_aligned({rows.query, cache.keys, cache.values}) && are_aligned(more);
}

/// Calls body(Count<lanes a key>, whether by vectors) with the fewest lanes that hold head_dim
/// elements of T; sizes that are no whole vectors take a warp a key.
template <typename T, typename Body>
void with_lanes(const DecodeRows& rows, bool vector, const Body& body) {
  const int64_t lanes = (rows.head_dim + kLanes<T> - 1) / kLanes<T>;
  if (!vector)
    body(Count<32>{}, std::false_type{});
  else if (lanes <= 4)
    body(Count<4>{}, std::true_type{});
  else if (lanes <= 8)
    body(Count<8>{}, std::true_type{});
  else if (lanes <= 16)
    body(Count<16>{}, std::true_type{});
  else
    body(Count<32>{}, std::true_type{});
}

/// Calls body(whether the cache is in bytes), with strides in vectors then.
template <typename Attention, typename Body>
void with_cache(Attention a, DecodeCache Attention::*member, const Body& body) {
  DecodeCache& cache = a.*member;
  if (cache.type == CacheType::native) return body(a, std::false_type{});
  for (int64_t* stride : {&cache.sequence_stride, &cache.head_stride, &cache.token_stride}) {
    QT_ASSERT(*stride % a.rows.head_dim == 0);
    *stride /= a.rows.head_dim;
  }
  body(a, std::true_type{});
}

inline void check_decode_rows(const char* what, const DecodeRows& rows, const DecodeCache& cache) {
  QT_ASSERT(rows.items > 0 && rows.decodes > 0 && rows.heads > 0 && cache.max_length > 0);
  QT_ASSERT(rows.dtype == DType::bf16 || rows.dtype == DType::f32);
  const int64_t most = rows.dtype == DType::bf16 ? 256 : 128;
  QT_CHECK(rows.head_dim > 0 && rows.head_dim <= most,
           "{}: heads of size {} on a GPU: at most {} in {}", what, rows.head_dim, most,
           rows.dtype == DType::bf16 ? "bfloat16" : "float32");
}

}  // namespace quintet::QT_GPU
