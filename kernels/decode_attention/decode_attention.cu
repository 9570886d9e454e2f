// Attention over contiguous sequences: chunks of tokens, joined in order.

#include "kernels/decode_attention/decode_attention_gpu.h"
#include "kernels/decode_attention/one_pass.cuh"
#include "kernels/simt/host/scratch.h"
#include "runtime/base/check.h"

namespace quintet::QT_GPU {
namespace {

/// A launch: the struct of the caller with what the host worked out.
template <typename Attention>
struct Task {
  Attention a;
  int chunks, chunk_tokens;
  float* partials;  // [blocks, chunks, queries, 2 + depth] when chunks > 1
};

/// Where a block finds its tokens. Cross-attention: all in the item's own.
struct CrossTokens {
  int64_t base;
  int limit;
  int64_t token_stride;
  __device__ int64_t offset(int t) const { return base + t * token_stride; }
  __device__ float bias(int) const { return 0; }
};
/// Self-attention: where `sources` says; the newest token in the row's own sequence.
struct SelfTokens {
  int64_t item_base, sequence_stride, token_stride;
  int own, newest, limit;
  const uint16_t* sources;
  const float* biases;  // of the head, or null
  int last_bias;
  __device__ int64_t offset(int t) const {
    const int sequence = t == newest ? own : sources[t];
    return item_base + sequence * sequence_stride + t * token_stride;
  }
  __device__ float bias(int t) const {
    if (biases == nullptr) return 0;
    const int back = newest - t;
    return biases[back < last_bias ? back : last_bias] * kLog2e;
  }
};

/// Grid: (items x groups of kQueries decodes x heads, chunks). Keys and values of the first turn are on their way before
/// the kernel before this one has ended: nothing in a step writes them (DecodeCross).
template <typename T, int kLanesPerKey, int kQueries, bool kVector, bool kBytes>
__global__ void __launch_bounds__(kThreads)
    cross_kernel(const __grid_constant__ Task<DecodeCross> task) {
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
  const CrossTokens tokens{item * cache.sequence_stride + head * cache.head_stride,
                           task.a.lengths[item], cache.token_stride};
  const int begin = static_cast<int>(blockIdx.y) * task.chunk_tokens;
  const int end =
      begin + task.chunk_tokens < tokens.limit ? begin + task.chunk_tokens : tokens.limit;
  Turn<T, kLanesPerKey, kVector, kBytes> turn;
  turn.clear();
  turn.load(tokens, cache, begin, begin, end, head_dim);
  simt::start_next();
  simt::wait_for_previous();
  float query[kQueries][kLanes<T>];
  load_queries<T, kLanesPerKey, kQueries, kVector>(
      static_cast<const T*>(rows.query) + row * rows.query_stride + within, rows.query_stride,
      queries, head_dim, query);
  Running<kQueries, kLanes<T>> running;
  running.start();
  attend_tokens<T, kLanesPerKey, kQueries, kVector, kBytes>(tokens, cache, begin, end, head_dim,
                                                            query, turn, running);
  float* partial = task.chunks == 1
                       ? nullptr
                       : task.partials + (int64_t{blockIdx.x} * task.chunks + blockIdx.y) *
                                             kQueries * (2 + head_dim);
  finish_block<T, kLanesPerKey, kQueries>(
      running, queries, head_dim, static_cast<T*>(rows.out) + row * rows.out_stride + within,
      rows.out_stride, partial);
}

/// Grid: (rows x heads, chunks). The chunk in which the new token lies appends it. Keys and values of earlier tokens of
/// the first turn are on their way before the kernel before this one has ended: they are of earlier steps (DecodeSelf).
template <typename T, int kLanesPerKey, bool kVector, bool kBytes>
__global__ void __launch_bounds__(kThreads)
    self_kernel(const __grid_constant__ Task<DecodeSelf> task) {
  const DecodeRows& rows = task.a.rows;
  const DecodeCache& cache = task.a.cache;
  const int heads = static_cast<int>(rows.heads), head = static_cast<int>(blockIdx.x) % heads;
  const int head_dim = static_cast<int>(rows.head_dim),
            capacity = static_cast<int>(cache.max_length);
  const int64_t row = blockIdx.x / static_cast<unsigned>(heads), within = head * rows.head_dim;
  const int position = task.a.positions[row], own = static_cast<int>(row % rows.decodes);
  const bool appends = position < capacity;
  const int64_t item_base = (row - own) * cache.sequence_stride + head * cache.head_stride;
  const SelfTokens tokens{
      item_base,
      cache.sequence_stride,
      cache.token_stride,
      own,
      appends ? position : -1,
      appends ? position + 1 : capacity,
      task.a.sources + row * cache.max_length,
      appends && task.a.bias != nullptr ? task.a.bias + head * task.a.biases : nullptr,
      static_cast<int>(task.a.biases) - 1};
  const int begin = static_cast<int>(blockIdx.y) * task.chunk_tokens;
  const int end =
      begin + task.chunk_tokens < tokens.limit ? begin + task.chunk_tokens : tokens.limit;
  const bool is_new_here = appends && begin <= position && position < end;
  Turn<T, kLanesPerKey, kVector, kBytes> turn;
  turn.clear();
  turn.load(tokens, cache, begin, begin, is_new_here ? position : end, head_dim);
  simt::start_next();
  simt::wait_for_previous();
  if (is_new_here) {
    // Heads that share one write the same there.
    const int64_t from = row * task.a.key_stride + (cache.head_stride == 0 ? 0 : within);
    append<T, kBytes>(cache, tokens.offset(position), static_cast<const T*>(task.a.key) + from,
                      static_cast<const T*>(task.a.value) + from, head_dim);
    turn.load(tokens, cache, begin, position, end, head_dim);
  }
  float query[1][kLanes<T>];
  load_queries<T, kLanesPerKey, 1, kVector>(
      static_cast<const T*>(rows.query) + row * rows.query_stride + within, 0, 1, head_dim, query);
  Running<1, kLanes<T>> running;
  running.start();
  attend_tokens<T, kLanesPerKey, 1, kVector, kBytes>(tokens, cache, begin, end, head_dim, query,
                                                     turn, running);
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
  const int64_t row = blockIdx.x, capacity = f.max_length;
  const int64_t parent = f.parents == nullptr ? row : f.parents[row];
  const int64_t position = f.positions[row], past = position < capacity ? position : capacity;
  for (int64_t t = threadIdx.x; t < past; t += blockDim.x)
    f.next[row * capacity + t] = f.sources[parent * capacity + t];
  if (threadIdx.x == 0 && position < capacity)
    f.next[row * capacity + position] = static_cast<uint16_t>(row % f.decodes);
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
    with_cache(a, &DecodeCross::cache, [&](const DecodeCross& by_vectors, auto bytes) {
      Plan<DecodeCross> plan(by_vectors, blocks, kQueries, lanes(), stream);
      simt::launch(cross_kernel<T, lanes(), kQueries, vector(), bytes()>, plan.how, plan.task);
      join<T>(rows, plan.task.partials, plan.task.chunks, kQueries, stream);
    });
  });
}

template <typename T>
void self(const DecodeSelf& a, Stream stream) {
  const DecodeRows& rows = a.rows;
  const bool vector = takes_vectors<T>(rows, a.cache, a.key_stride, {a.key, a.value});
  const int64_t blocks = rows.items * rows.decodes * rows.heads;
  with_lanes<T>(rows, vector, [&](auto lanes, auto is_vector) {
    with_cache(a, &DecodeSelf::cache, [&](const DecodeSelf& by_vectors, auto bytes) {
      Plan<DecodeSelf> plan(by_vectors, blocks, 1, lanes(), stream);
      simt::launch(self_kernel<T, lanes(), is_vector(), bytes()>, plan.how, plan.task);
      join<T>(rows, plan.task.partials, plan.task.chunks, 1, stream);
    });
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
  check_decode_rows("cross-attention of generation", a.rows, a.cache);
  a.rows.dtype == DType::bf16 ? cross_of<bf16>(a, stream) : cross_of<float>(a, stream);
}

void decode_self_gpu(const DecodeSelf& a, Stream stream) {
  check_decode_rows("self-attention of generation", a.rows, a.cache);
  a.rows.dtype == DType::bf16 ? self<bf16>(a, stream) : self<float>(a, stream);
}

void follow_sources_gpu(const FollowSources& f, Stream stream) {
  simt::launch(follow_kernel,
               {.grid = static_cast<unsigned>(f.items * f.decodes), .block = 128, .stream = stream},
               f);
}

}  // namespace quintet::QT_GPU
