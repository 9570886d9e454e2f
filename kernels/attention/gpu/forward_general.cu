#include <cmath>

#include "kernels/attention/attention.h"
#include "kernels/attention/gpu/general.cuh"

namespace quintet::QT_GPU::attention {
namespace {

constexpr float kNever = -INFINITY;

// Largest of the 16 threads that share rows; their sum.
__device__ float max_of_16(float x) {
  for (int mask = 8; mask > 0; mask /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, mask));
  return x;
}
__device__ float sum_of_16(float x) {
  for (int mask = 8; mask > 0; mask /= 2) x += __shfl_xor_sync(0xffffffffU, x, mask);
  return x;
}

// A block a tile of 16 kRows queries of a head, keys in blocks as large. Shared: q; k, then v; p.
template <typename T, int kRows, int kColumns>
__global__ void __launch_bounds__(kGeneralThreads)
    forward_kernel(const __grid_constant__ Problem p, const float* bias_diagonals, const T* q,
                   const T* k, const T* v, T* out, float* lse) {
  constexpr int kTile = 16 * kRows;
  const int tx = static_cast<int>(threadIdx.x) % 16, ty = static_cast<int>(threadIdx.x) / 16;
  const int tiles = (p.queries + kTile - 1) / kTile;
  const int first = static_cast<int>(blockIdx.x) % tiles * kTile;
  const int head = static_cast<int>(blockIdx.x) / tiles % p.heads;
  const int b = static_cast<int>(blockIdx.x) / tiles / p.heads;
  const int stride = p.depth | 1, w_stride = kTile + 1;
  auto q_tile = simt::shared<float>(0, kTile * stride);
  auto kv_tile = simt::shared<float>(sizeof(float) * kTile * stride, kTile * stride);
  auto weights = simt::shared<float>(sizeof(float) * 2 * kTile * stride, kTile * w_stride);
  const float* head_diagonals =
      bias_diagonals == nullptr ? nullptr
                                : bias_diagonals + static_cast<int64_t>(head) * (2 * p.reach + 1);

  load_rows(p, q, p.queries, b, head, first, kTile, q_tile, stride);
  RowKeys rows[kRows];
  float largest[kRows], total[kRows], sums[kRows][kColumns];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    rows[i] = row_keys(p, b, first + ty + 16 * i);
    largest[i] = kNever;
    total[i] = 0;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[i][c] = 0;
  }
  const TileKeys hull = tile_keys(p, b, first / kTileQueries * kTileQueries, kTileQueries);
  for (int key = hull.begin / kTile * kTile; key < hull.end; key += kTile) {
    __syncthreads();
    load_rows(p, k, p.keys, b, head, key, kTile, kv_tile, stride);
    __syncthreads();
    float scores[kRows][kRows];
    row_products(q_tile, kv_tile, stride, p.depth, scores);
    __syncthreads();
    load_rows(p, v, p.keys, b, head, key, kTile, kv_tile, stride);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int query = first + ty + 16 * i;
      float here = largest[i];
#pragma unroll
      for (int j = 0; j < kRows; ++j) {
        const int at = key + tx + 16 * j;
        float score = p.scale * scores[i][j];
        if (head_diagonals != nullptr)
          score += head_diagonals[clamp_relative(at + p.first_relative - query, p.reach) + p.reach];
        if (rows[i].none) score = 0;
        scores[i][j] = attends(p, b, query, at, rows[i]) ? score : kNever;
        here = fmaxf(here, scores[i][j]);
      }
      here = max_of_16(here);
      const float shift = here == kNever ? 0.0F : here, rescale = expf(largest[i] - shift);
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kRows; ++j) {
        const float e = expf(scores[i][j] - shift);
        weights[(ty + 16 * i) * w_stride + tx + 16 * j] = e;
        sum += e;
      }
      largest[i] = here;
      total[i] = total[i] * rescale + sum_of_16(sum);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) sums[i][c] *= rescale;
    }
    __syncthreads();
    accumulate<kRows, kColumns, false>(weights, w_stride, kv_tile, stride, kTile, p.depth, sums);
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int query = first + ty + 16 * i;
    if (query >= p.queries) continue;
    const float share = total[i] > 0 ? p.keep_scale / total[i] : total[i] == 0 ? 0 : total[i];
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      if (tx + 16 * c < p.depth)
        out[p.offset(p.queries, b, query, head) + tx + 16 * c] =
            simt::from_float<T>(sums[i][c] * share);
    if (lse != nullptr && tx == 0)
      lse[(static_cast<int64_t>(b) * p.heads + head) * p.queries + query] =
          rows[i].none || p.keys == 0 ? kMaskedScore : largest[i] + logf(total[i]);
  }
}

template <typename T, int kRows, int kColumns>
void launch_forward(const Prepared& prepared, void* out, float* lse, Stream stream) {
  const Problem& p = prepared.problem;
  constexpr int kTile = 16 * kRows;
  const size_t floats = 2 * kTile * static_cast<size_t>(p.depth | 1) + kTile * (kTile + 1);
  const int tiles = (p.queries + kTile - 1) / kTile;
  simt::launch(forward_kernel<T, kRows, kColumns>,
               simt::Launch{.grid = dim3(static_cast<unsigned>(tiles * p.heads * p.batch)),
                            .block = dim3(kGeneralThreads),
                            .shared = floats * sizeof(float),
                            .stream = stream},
               p, prepared.bias_diagonals, static_cast<const T*>(prepared.q),
               static_cast<const T*>(prepared.k), static_cast<const T*>(prepared.v),
               static_cast<T*>(out), lse);
}

template <typename T>
void forward_of(const Prepared& p, void* out, float* lse, Stream stream) {
  if (p.problem.depth <= 64)
    launch_forward<T, 4, 4>(p, out, lse, stream);
  else
    launch_forward<T, 2, 16>(p, out, lse, stream);
}

}  // namespace

void forward_general(const Prepared& p, void* out, float* lse, Stream stream) {
  if (p.problem.batch == 0 || p.problem.heads == 0 || p.problem.queries == 0) return;
  if (p.dtype == DType::f32)
    forward_of<float>(p, out, lse, stream);
  else
    forward_of<bf16>(p, out, lse, stream);
}

}  // namespace quintet::QT_GPU::attention
