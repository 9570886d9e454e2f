// Attention over a pool: a block reads one head of one group's tokens, wherever they stand, in the
// order of the group's list. How a row's sums are taken depends on its own tokens alone.

#include "kernels/decode_attention/decode_attention_gpu.h"
#include "kernels/decode_attention/one_pass.cuh"

namespace quintet::QT_GPU {
namespace {

struct PagedTokens {
  const int32_t* slots;
  int64_t base, token_stride;
  int newest;
  const float* biases;  // of the head, or null
  int last_bias;
  __device__ int64_t offset(int t) const { return base + slots[t] * token_stride; }
  __device__ float bias(int t) const {
    if (biases == nullptr) return 0;
    const int back = newest - t;
    return biases[back < last_bias ? back : last_bias] * kLog2e;
  }
};

template <typename T, int kLanesPerKey, int kQueries, bool kVector, bool kBytes>
QT_DEVICE void attend_group(const DecodePaged& a, const PagedGroup& group,
                            const PagedTokens& tokens, int64_t within) {
  const DecodeRows& rows = a.rows;
  const int head_dim = static_cast<int>(rows.head_dim);
  float query[kQueries][kLanes<T>];
  load_queries<T, kLanesPerKey, kQueries, kVector>(
      static_cast<const T*>(rows.query) + group.row * rows.query_stride + within, rows.query_stride,
      group.rows, head_dim, query);
  Running<kQueries, kLanes<T>> running;
  running.start();
  Turn<T, kLanesPerKey, kVector, kBytes> turn;
  turn.clear();
  turn.load(tokens, a.pool, 0, 0, group.length, head_dim);
  attend_tokens<T, kLanesPerKey, kQueries, kVector, kBytes>(tokens, a.pool, 0, group.length,
                                                            head_dim, query, turn, running);
  finish_block<T, kLanesPerKey, kQueries>(
      running, group.rows, head_dim,
      static_cast<T*>(rows.out) + group.row * rows.out_stride + within, rows.out_stride, nullptr);
}

/// Grid: groups x heads. A row alone in its group does not pay for the queries of others.
template <typename T, int kLanesPerKey, int kQueries, bool kVector, bool kBytes>
__global__ void __launch_bounds__(kThreads) paged_kernel(const __grid_constant__ DecodePaged a) {
  simt::start_next();
  simt::wait_for_previous();
  const int heads = static_cast<int>(a.rows.heads), head = static_cast<int>(blockIdx.x) % heads;
  const PagedGroup group = a.groups[blockIdx.x / static_cast<unsigned>(heads)];
  if (group.rows == 0) return;
  const int64_t within = head * a.rows.head_dim;
  const PagedTokens tokens{group.slots,
                           head * a.pool.head_stride,
                           a.pool.token_stride,
                           group.length - 1,
                           a.bias != nullptr ? a.bias + head * a.biases : nullptr,
                           static_cast<int>(a.biases) - 1};
  if (a.key != nullptr) {
    // Heads that share one write the same there.
    const int64_t from = group.row * a.key_stride + (a.pool.head_stride == 0 ? 0 : within);
    append<T, kBytes>(a.pool, tokens.offset(tokens.newest), static_cast<const T*>(a.key) + from,
                      static_cast<const T*>(a.value) + from, static_cast<int>(a.rows.head_dim));
  }
  if constexpr (kQueries > 1)
    if (group.rows > 1)
      return attend_group<T, kLanesPerKey, kQueries, kVector, kBytes>(a, group, tokens, within);
  attend_group<T, kLanesPerKey, 1, kVector, kBytes>(a, group, tokens, within);
}

template <typename T, int kQueries>
void paged(const DecodePaged& a, Stream stream) {
  const DecodeRows& rows = a.rows;
  const bool vector = takes_vectors<T>(rows, a.pool, a.key_stride, {a.key, a.value});
  with_lanes<T>(rows, vector, [&](auto lanes, auto is_vector) {
    const int depth = lanes() * kLanes<T>;
    with_cache(a, &DecodePaged::pool, [&](const DecodePaged& by_vectors, auto bytes) {
      simt::launch(paged_kernel<T, lanes(), kQueries, is_vector(), bytes()>,
                   {.grid = static_cast<unsigned>(rows.items * rows.heads),
                    .block = kThreads,
                    .shared = sizeof(float) * static_cast<size_t>(kWarps * kQueries * (2 + depth)),
                    .stream = stream,
                    .early = true},
                   by_vectors);
    });
  });
}

template <typename T>
void paged_of(const DecodePaged& a, Stream stream) {
  if (a.rows.decodes == 1)
    paged<T, 1>(a, stream);
  else
    paged<T, kMostGroupRows>(a, stream);
}

/// Grid: tokens.
template <typename T>
__global__ void store_kernel(const __grid_constant__ StorePaged s) {
  simt::start_next();
  simt::wait_for_previous();
  const int64_t width = s.heads * s.head_dim, from = blockIdx.x * s.stride;
  const int64_t slot = s.slots[blockIdx.x], at = slot * s.pool.token_stride;
  if (slot < 0) return;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const int64_t to = at + i / s.head_dim * s.pool.head_stride + i % s.head_dim;
    static_cast<T*>(s.pool.keys)[to] = static_cast<const T*>(s.keys)[from + i];
    static_cast<T*>(s.pool.values)[to] = static_cast<const T*>(s.values)[from + i];
  }
}

/// The same to a pool in bytes, a vector a warp: of each head its key, then its value.
template <typename T>
__global__ void store_bytes_kernel(const __grid_constant__ StorePaged s) {
  simt::start_next();
  simt::wait_for_previous();
  const int64_t slot = s.slots[blockIdx.x], from = blockIdx.x * s.stride;
  if (slot < 0) return;
  const int64_t warps = blockDim.x / 32;
  for (int64_t i = threadIdx.x / 32; i < 2 * s.heads; i += warps) {
    const int64_t head = i / 2, to = slot * s.pool.token_stride + head * s.pool.head_stride,
                  vector = to / s.head_dim;
    const bool is_key = i % 2 == 0;
    store_in_bytes(static_cast<const T*>(is_key ? s.keys : s.values) + from + head * s.head_dim,
                   static_cast<int>(s.head_dim), s.pool.type,
                   static_cast<uint8_t*>(is_key ? s.pool.keys : s.pool.values) + to,
                   (is_key ? s.pool.key_scales : s.pool.value_scales) + vector);
  }
}

template <typename T>
void store(const StorePaged& s, Stream stream) {
  const simt::Launch how{
      .grid = static_cast<unsigned>(s.tokens), .block = 256, .stream = stream, .early = true};
  s.pool.type == CacheType::native ? simt::launch(store_kernel<T>, how, s)
                                   : simt::launch(store_bytes_kernel<T>, how, s);
}

}  // namespace

void decode_paged_gpu(const DecodePaged& a, Stream stream) {
  check_decode_rows("attention of generation", a.rows, a.pool);
  QT_ASSERT(a.rows.decodes <= (a.key != nullptr ? 1 : kMostGroupRows));
  a.rows.dtype == DType::bf16 ? paged_of<bf16>(a, stream) : paged_of<float>(a, stream);
}

void store_paged_gpu(const StorePaged& s, Stream stream) {
  QT_ASSERT(s.dtype == DType::bf16 || s.dtype == DType::f32);
  if (s.tokens == 0) return;
  s.dtype == DType::bf16 ? store<bf16>(s, stream) : store<float>(s, stream);
}

}  // namespace quintet::QT_GPU
