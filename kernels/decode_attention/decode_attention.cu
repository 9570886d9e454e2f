// One pass over keys and values: a few lanes hold a key and a value of a token in 16-byte parts,
// each lane keeps its part of the weighted sum; lanes, warps and chunks of tokens are joined at the
// end.

#include "kernels/decode_attention/decode_attention_gpu.h"
#include "kernels/elementwise/vectors.cuh"
#include "kernels/simt/scratch.h"
#include "runtime/base/check.h"

namespace quintet::QT_GPU {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr float kLog2e = 1.44269504f;
constexpr float kLowest = -1e30f;  // below any logit, yet differences stay numbers

/// A launch: the struct of the caller with what the host worked out.
template <typename Attention>
struct Task {
  Attention a;
  int chunks, chunk_tokens;
  float* partials;  // [blocks, chunks, queries, 2 + depth] when chunks > 1
};

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

/// Where a block finds its tokens. Cross-attention: all in the item's slot.
struct CrossTokens {
  int64_t base;
  int limit;
  int64_t token_stride;
  __device__ int64_t offset(int t) const { return base + t * token_stride; }
  __device__ float bias(int) const { return 0; }
};
/// Self-attention: where `sources` says; the newest token in the row's own slot.
struct SelfTokens {
  int64_t item_base, slot_stride, token_stride;
  int own, newest, limit;
  const uint16_t* sources;
  const float* biases;  // of the head, or null
  int last_bias;
  __device__ int64_t offset(int t) const {
    const int slot = t == newest ? own : sources[t];
    return item_base + slot * slot_stride + t * token_stride;
  }
  __device__ float bias(int t) const {
    if (biases == nullptr) return 0;
    const int back = newest - t;
    return biases[back < last_bias ? back : last_bias] * kLog2e;
  }
};

/// Tokens [begin, end) of a chunk, shared out among the block's groups of lanes.
template <typename T, int kLanesPerKey, int kQueries, bool kVector, typename Tokens>
QT_DEVICE void attend_tokens(const Tokens& tokens, const T* keys, const T* values, int begin,
                             int end, int head_dim, const float (&query)[kQueries][kLanes<T>],
                             Running<kQueries, kLanes<T>>& running) {
  constexpr int kLane = kLanes<T>, kGroups = 32 / kLanesPerKey, kTogether = 4;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int first = lane % kLanesPerKey * kLane;
  for (int base = begin; base < end; base += kTogether * kWarps * kGroups) {
    float key[kTogether][kLane], value[kTogether][kLane], scores[kTogether][kQueries];
    int token[kTogether];
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      token[u] = base + (u * kWarps + warp) * kGroups + lane / kLanesPerKey;
      if (token[u] < end) {
        const int64_t at = tokens.offset(token[u]);
        load_part<kVector>(keys + at, first, head_dim, key[u]);
        load_part<kVector>(values + at, first, head_dim, value[u]);
      } else {
#pragma unroll
        for (int i = 0; i < kLane; ++i) key[u][i] = value[u][i] = 0;
      }
    }
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      const float bias = token[u] < end ? tokens.bias(token[u]) : -INFINITY;
#pragma unroll
      for (int r = 0; r < kQueries; ++r) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < kLane; ++i) sum += query[r][i] * key[u][i];
#pragma unroll
        for (int distance = kLanesPerKey / 2; distance > 0; distance /= 2)
          sum += __shfl_xor_sync(kWholeWarp, sum, distance);
        scores[u][r] = sum + bias;
      }
    }
#pragma unroll
    for (int r = 0; r < kQueries; ++r) {
      float most = running.largest[r];
#pragma unroll
      for (int u = 0; u < kTogether; ++u) most = fmaxf(most, scores[u][r]);
      const float kept = simt::exp2_approx(running.largest[r] - most);
      running.largest[r] = most;
      running.total[r] *= kept;
#pragma unroll
      for (int i = 0; i < kLane; ++i) running.sums[r][i] *= kept;
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        const float weight = simt::exp2_approx(scores[u][r] - most);
        running.total[r] += weight;
#pragma unroll
        for (int i = 0; i < kLane; ++i) running.sums[r][i] += weight * value[u][i];
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

/// Grid: (items x groups of kQueries decodes x heads, chunks).
template <typename T, int kLanesPerKey, int kQueries, bool kVector>
__global__ void __launch_bounds__(kThreads)
    cross_kernel(const __grid_constant__ Task<DecodeCross> task) {
  simt::start_next();
  simt::wait_for_previous();
  const DecodeRows& rows = task.a.rows;
  const DecodeCache& cache = task.a.cache;
  const int heads = static_cast<int>(rows.heads), head = static_cast<int>(blockIdx.x) % heads;
  const int groups = static_cast<int>((rows.decodes + kQueries - 1) / kQueries);
  const int group = static_cast<int>(blockIdx.x) / heads % groups;
  const int64_t item = blockIdx.x / static_cast<unsigned>(heads * groups);
  const int head_dim = static_cast<int>(rows.head_dim);
  const int left = static_cast<int>(rows.decodes) - group * kQueries;
  const int queries = left < kQueries ? left : kQueries;
  const int64_t row = item * rows.decodes + group * kQueries, within = head * rows.head_dim;
  float query[kQueries][kLanes<T>];
  load_queries<T, kLanesPerKey, kQueries, kVector>(
      static_cast<const T*>(rows.query) + row * rows.query_stride + within, rows.query_stride,
      queries, head_dim, query);
  const CrossTokens tokens{item * cache.slot_stride + head * cache.head_stride,
                           task.a.lengths[item], cache.token_stride};
  const int begin = static_cast<int>(blockIdx.y) * task.chunk_tokens;
  const int end =
      begin + task.chunk_tokens < tokens.limit ? begin + task.chunk_tokens : tokens.limit;
  Running<kQueries, kLanes<T>> running;
  running.start();
  attend_tokens<T, kLanesPerKey, kQueries, kVector>(tokens, static_cast<const T*>(cache.keys),
                                                    static_cast<const T*>(cache.values), begin, end,
                                                    head_dim, query, running);
  float* partial = task.chunks == 1
                       ? nullptr
                       : task.partials + (int64_t{blockIdx.x} * task.chunks + blockIdx.y) *
                                             kQueries * (2 + head_dim);
  finish_block<T, kLanesPerKey, kQueries>(
      running, queries, head_dim, static_cast<T*>(rows.out) + row * rows.out_stride + within,
      rows.out_stride, partial);
}

/// Grid: (rows x heads, chunks). The chunk in which the new token lies appends it.
template <typename T, int kLanesPerKey, bool kVector>
__global__ void __launch_bounds__(kThreads)
    self_kernel(const __grid_constant__ Task<DecodeSelf> task) {
  simt::start_next();
  simt::wait_for_previous();
  const DecodeRows& rows = task.a.rows;
  const DecodeCache& cache = task.a.cache;
  const int heads = static_cast<int>(rows.heads), head = static_cast<int>(blockIdx.x) % heads;
  const int head_dim = static_cast<int>(rows.head_dim), room = static_cast<int>(cache.max_length);
  const int64_t row = blockIdx.x / static_cast<unsigned>(heads), within = head * rows.head_dim;
  const int position = task.a.positions[row], own = static_cast<int>(row % rows.decodes);
  const bool appends = position < room;
  const int64_t item_base = (row - own) * cache.slot_stride + head * cache.head_stride;
  const SelfTokens tokens{
      item_base,
      cache.slot_stride,
      cache.token_stride,
      own,
      appends ? position : -1,
      appends ? position + 1 : room,
      task.a.sources + row * cache.max_length,
      appends && task.a.bias != nullptr ? task.a.bias + head * task.a.biases : nullptr,
      static_cast<int>(task.a.biases) - 1};
  const int begin = static_cast<int>(blockIdx.y) * task.chunk_tokens;
  const int end =
      begin + task.chunk_tokens < tokens.limit ? begin + task.chunk_tokens : tokens.limit;
  T *keys = static_cast<T*>(cache.keys), *values = static_cast<T*>(cache.values);
  if (appends && begin <= position && position < end) {
    const T* key = static_cast<const T*>(task.a.key) + row * task.a.key_stride + within;
    const T* value = static_cast<const T*>(task.a.value) + row * task.a.key_stride + within;
    const int64_t at = tokens.offset(position);
    for (int i = static_cast<int>(threadIdx.x); i < head_dim; i += kThreads)
      keys[at + i] = key[i], values[at + i] = value[i];
    __syncthreads();
  }
  float query[1][kLanes<T>];
  load_queries<T, kLanesPerKey, 1, kVector>(
      static_cast<const T*>(rows.query) + row * rows.query_stride + within, 0, 1, head_dim, query);
  Running<1, kLanes<T>> running;
  running.start();
  attend_tokens<T, kLanesPerKey, 1, kVector>(tokens, keys, values, begin, end, head_dim, query,
                                             running);
  float* partial =
      task.chunks == 1
          ? nullptr
          : task.partials + (int64_t{blockIdx.x} * task.chunks + blockIdx.y) * (2 + head_dim);
  finish_block<T, kLanesPerKey, 1>(running, 1, head_dim,
                                   static_cast<T*>(rows.out) + row * rows.out_stride + within,
                                   rows.out_stride, partial);
}

/// Joins the chunks of one row and head, in order. Grid: rows x heads; a thread an element.
template <typename T>
__global__ void join_chunks(const float* partials, int chunks, int queries,
                            const __grid_constant__ DecodeRows rows) {
  const int heads = static_cast<int>(rows.heads), head = static_cast<int>(blockIdx.x) % heads;
  const int head_dim = static_cast<int>(rows.head_dim), decodes = static_cast<int>(rows.decodes);
  const int64_t row = blockIdx.x / static_cast<unsigned>(heads), item = row / decodes;
  const int decode = static_cast<int>(row % decodes), groups = (decodes + queries - 1) / queries;
  const int64_t block = (item * groups + decode / queries) * heads + head;
  const int64_t chunk_stride = static_cast<int64_t>(queries) * (2 + head_dim);
  const float* first =
      partials + block * chunks * chunk_stride + (decode % queries) * int64_t{2 + head_dim};
  for (int d = static_cast<int>(threadIdx.x); d < head_dim; d += static_cast<int>(blockDim.x)) {
    float most = kLowest, total = 0, sum = 0;
    for (int c = 0; c < chunks; ++c) most = fmaxf(most, first[c * chunk_stride]);
    for (int c = 0; c < chunks; ++c) {
      const float* part = first + c * chunk_stride;
      const float share = simt::exp2_approx(part[0] - most);
      total += share * part[1];
      sum += share * part[2 + d];
    }
    static_cast<T*>(rows.out)[row * rows.out_stride + head * rows.head_dim + d] =
        simt::from_float<T>(sum / total);
  }
}

__global__ void follow_kernel(const __grid_constant__ FollowSources f) {
  const int64_t row = blockIdx.x, room = f.max_length;
  const int64_t parent = f.parents == nullptr ? row : f.parents[row];
  const int64_t position = f.positions[row], past = position < room ? position : room;
  for (int64_t t = threadIdx.x; t < past; t += blockDim.x)
    f.next[row * room + t] = f.sources[parent * room + t];
  if (threadIdx.x == 0 && position < room)
    f.next[row * room + position] = static_cast<uint16_t>(row % f.decodes);
}

template <typename T>
bool takes_vectors(const DecodeRows& rows, const DecodeCache& cache, int64_t key_stride,
                   std::initializer_list<const void*> more) {
  constexpr int64_t kLane = kLanes<T>;
  for (int64_t n : {rows.head_dim, rows.query_stride, key_stride, cache.slot_stride,
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

void check(const char* what, const DecodeRows& rows, const DecodeCache& cache) {
  QT_ASSERT(rows.items > 0 && rows.decodes > 0 && rows.heads > 0 && cache.max_length > 0);
  QT_ASSERT(rows.dtype == DType::bf16 || rows.dtype == DType::f32);
  const int64_t most = rows.dtype == DType::bf16 ? 256 : 128;
  QT_CHECK(rows.head_dim > 0 && rows.head_dim <= most,
           "{}: heads of size {} on a GPU: at most {} in {}", what, rows.head_dim, most,
           rows.dtype == DType::bf16 ? "bfloat16" : "float32");
}

/// How many parts the tokens are cut into: enough blocks for two waves, 128 tokens at least (joining
/// two parts is a kernel more, which takes as long as 64 more tokens).
int chunks_for(int64_t blocks, int64_t max_length) {
  const int64_t wanted = (2 * simt::device().multiprocessors + blocks - 1) / blocks;
  const int64_t most = (max_length + 127) / 128;
  return static_cast<int>(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

template <typename Attention>
struct Plan {
  Task<Attention> task{};
  simt::Scratch scratch;
  simt::Launch how;
  Plan(const Attention& a, int64_t blocks, int queries, int lanes_per_key, Stream stream)
      : scratch(bytes_of(a, blocks, queries)) {
    task.a = a;
    task.chunks = chunks_for(blocks, a.cache.max_length);
    task.chunk_tokens = static_cast<int>((a.cache.max_length + task.chunks - 1) / task.chunks);
    task.partials = scratch.template data<float>();
    const int depth = lanes_per_key * (a.rows.dtype == DType::bf16 ? 8 : 4);
    how = {.grid = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(task.chunks)),
           .block = kThreads,
           .shared = sizeof(float) * static_cast<size_t>(kWarps * queries * (2 + depth)),
           .stream = stream,
           .early = true};
  }
  static int64_t bytes_of(const Attention& a, int64_t blocks, int queries) {
    const int64_t chunks = chunks_for(blocks, a.cache.max_length);
    return chunks == 1 ? 16 : 4 * blocks * chunks * queries * (2 + a.rows.head_dim);
  }
};

template <typename T>
void join(const DecodeRows& rows, const float* partials, int chunks, int queries, Stream stream) {
  if (chunks == 1) return;
  simt::launch(join_chunks<T>,
               {.grid = static_cast<unsigned>(rows.items * rows.decodes * rows.heads),
                .block = 64,
                .stream = stream},
               partials, chunks, queries, rows);
}

template <typename T, int kQueries>
void cross(const DecodeCross& a, Stream stream) {
  const DecodeRows& rows = a.rows;
  const int64_t blocks = rows.items * ((rows.decodes + kQueries - 1) / kQueries) * rows.heads;
  with_lanes<T>(rows, takes_vectors<T>(rows, a.cache, 0, {}), [&](auto lanes, auto vector) {
    Plan<DecodeCross> plan(a, blocks, kQueries, lanes(), stream);
    simt::launch(cross_kernel<T, lanes(), kQueries, vector()>, plan.how, plan.task);
    join<T>(rows, plan.task.partials, plan.task.chunks, kQueries, stream);
  });
}

template <typename T>
void self(const DecodeSelf& a, Stream stream) {
  const DecodeRows& rows = a.rows;
  const bool vector = takes_vectors<T>(rows, a.cache, a.key_stride, {a.key, a.value});
  const int64_t blocks = rows.items * rows.decodes * rows.heads;
  with_lanes<T>(rows, vector, [&](auto lanes, auto is_vector) {
    Plan<DecodeSelf> plan(a, blocks, 1, lanes(), stream);
    simt::launch(self_kernel<T, lanes(), is_vector()>, plan.how, plan.task);
    join<T>(rows, plan.task.partials, plan.task.chunks, 1, stream);
  });
}

template <typename T>
void cross_of(const DecodeCross& a, Stream stream) {
  if (a.rows.decodes == 1)
    cross<T, 1>(a, stream);
  else
    cross<T, 4>(a, stream);
}

}  // namespace

void decode_cross_gpu(const DecodeCross& a, Stream stream) {
  check("cross-attention of generation", a.rows, a.cache);
  a.rows.dtype == DType::bf16 ? cross_of<bf16>(a, stream) : cross_of<float>(a, stream);
}

void decode_self_gpu(const DecodeSelf& a, Stream stream) {
  check("self-attention of generation", a.rows, a.cache);
  a.rows.dtype == DType::bf16 ? self<bf16>(a, stream) : self<float>(a, stream);
}

void follow_sources_gpu(const FollowSources& f, Stream stream) {
  simt::launch(follow_kernel,
               {.grid = static_cast<unsigned>(f.items * f.decodes), .block = 128, .stream = stream},
               f);
}

}  // namespace quintet::QT_GPU
