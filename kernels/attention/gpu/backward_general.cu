#include <cmath>

#include "kernels/attention/gpu/general.cuh"

namespace quintet::QT_GPU::attention {
namespace {

template <typename T>
struct Operands {
  const T *q, *k, *v, *dout;
  const uint8_t* keep;
  const float* bias_diagonals;
  Statistics statistics;
  int64_t statistics_stride;  // padded queries
};

template <typename T>
struct Results {
  T *dq, *dk, *dv;
  float* dq_sums;          // [b, q, h*d], not scaled; for float32 dq itself
  float* dbias_diagonals;  // [b, h, 2 reach + 1], zeros before; null: not asked for
};

// Adds the sums of a tile's diagonals (key - query constant) to the head's diagonals of the bias; diagonal t of `dscores`
// [query, key] has relative position relative + t - (kTile - 1). One thread writes an entry.
template <int kTile>
__device__ void add_diagonals(simt::Shared<float> dscores, simt::Shared<float> diagonals,
                              int relative, int reach, float* dhead_diagonals) {
  constexpr int kCount = 2 * kTile - 1;
  const int t = static_cast<int>(threadIdx.x), first = relative - (kTile - 1);
  if (t < kCount) {
    float sum = 0;
    for (int row = 0; row < kTile; ++row) {
      const int column = row + t - (kTile - 1);
      if (column >= 0 && column < kTile) sum += dscores[row * (kTile + 1) + column];
    }
    diagonals[t] = sum;
    if (first + t > -reach && first + t < reach) dhead_diagonals[first + t + reach] += sum;
  }
  __syncthreads();
  if (t > 1) return;
  float sum = 0;  // thread 0: everything at or before -reach, thread 1: at or after it
  for (int i = 0; i < kCount; ++i)
    if (t == 0 ? first + i <= -reach : first + i >= reach) sum += diagonals[i];
  dhead_diagonals[t == 0 ? 0 : 2 * reach] += sum;
}

// A block a head of a sequence: for each block of keys all queries that need it.
template <typename T, int kRows, int kColumns>
__global__ void __launch_bounds__(kGeneralThreads)
    backward_kernel(const __grid_constant__ Problem p, Operands<T> in, Results<T> to) {
  constexpr int kTile = 16 * kRows, kStride = kTile + 1;
  const int tx = static_cast<int>(threadIdx.x) % 16, ty = static_cast<int>(threadIdx.x) / 16;
  const int head = static_cast<int>(blockIdx.x) % p.heads;
  const int b = static_cast<int>(blockIdx.x) / p.heads;
  const int stride = p.depth | 1;
  const size_t tile_bytes = sizeof(float) * kTile * stride;
  auto k_tile = simt::shared<float>(0, kTile * stride);
  auto v_tile = simt::shared<float>(tile_bytes, kTile * stride);
  auto q_tile = simt::shared<float>(2 * tile_bytes, kTile * stride);
  auto dout_tile = simt::shared<float>(3 * tile_bytes, kTile * stride);
  auto weights = simt::shared<float>(4 * tile_bytes, kTile * kStride);
  auto dscores =
      simt::shared<float>(4 * tile_bytes + sizeof(float) * kTile * kStride, kTile * kStride);
  auto diagonals =
      simt::shared<float>(4 * tile_bytes + sizeof(float) * 2 * kTile * kStride, 2 * kTile);
  const int64_t item = static_cast<int64_t>(b) * p.heads + head;
  const float* head_diagonals =
      in.bias_diagonals == nullptr ? nullptr : in.bias_diagonals + head * (2 * p.reach + 1);
  const float* lse = in.statistics.lse + item * in.statistics_stride;
  const float* delta = in.statistics.delta + item * in.statistics_stride;

  for (int key = 0; key < p.keys; key += kTile) {
    __syncthreads();
    load_rows(p, in.k, p.keys, b, head, key, kTile, k_tile, stride);
    load_rows(p, in.v, p.keys, b, head, key, kTile, v_tile, stride);
    float dk[kRows][kColumns] = {}, dv[kRows][kColumns] = {};
    for (int first = 0; first < p.queries; first += kTile) {
      const TileKeys hull = tile_keys(p, b, first / kTileQueries * kTileQueries, kTileQueries);
      const int hull_begin = hull.begin / kTile * kTile;
      if (key < hull_begin || key >= hull.end) continue;
      __syncthreads();
      load_rows(p, in.q, p.queries, b, head, first, kTile, q_tile, stride);
      load_rows(p, in.dout, p.queries, b, head, first, kTile, dout_tile, stride);
      __syncthreads();
      float scores[kRows][kRows], dweights[kRows][kRows];
      row_products(q_tile, k_tile, stride, p.depth, scores);
      row_products(dout_tile, v_tile, stride, p.depth, dweights);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int row = ty + 16 * i, query = first + row;
        const RowKeys keys = row_keys(p, b, query);
#pragma unroll
        for (int j = 0; j < kRows; ++j) {
          const int column = tx + 16 * j, at = key + column;
          float score = p.scale * scores[i][j];
          if (head_diagonals != nullptr)
            score +=
                head_diagonals[clamp_relative(at + p.first_relative - query, p.reach) + p.reach];
          if (keys.none) score = 0;
          float weight = 0, dscore = 0;
          if (attends(p, b, query, at, keys)) {
            weight = expf(score - lse[query]);
            dscore = weight * (p.keep_scale * dweights[i][j] - delta[query]);
          }
          weights[row * kStride + column] = weight;
          dscores[row * kStride + column] = dscore;
        }
      }
      __syncthreads();
      accumulate<kRows, kColumns, true>(weights, kStride, dout_tile, stride, kTile, p.depth, dv);
      accumulate<kRows, kColumns, true>(dscores, kStride, q_tile, stride, kTile, p.depth, dk);
      float dq[kRows][kColumns] = {};
      accumulate<kRows, kColumns, false>(dscores, kStride, k_tile, stride, kTile, p.depth, dq);
      const bool is_first = key == hull_begin, is_last = key + kTile >= hull.end;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int query = first + ty + 16 * i;
        if (query >= p.queries) continue;
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          if (tx + 16 * c >= p.depth) continue;
          const int64_t at = p.offset(p.queries, b, query, head) + tx + 16 * c;
          const float sum = is_first ? dq[i][c] : to.dq_sums[at] + dq[i][c];
          if (is_last)
            to.dq[at] = simt::from_float<T>(p.scale * sum);
          else
            to.dq_sums[at] = sum;
        }
      }
      if (to.dbias_diagonals != nullptr)
        add_diagonals<kTile>(dscores, diagonals, key + p.first_relative - first, p.reach,
                             to.dbias_diagonals + item * (2 * p.reach + 1));
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int at_key = key + ty + 16 * i;
      if (at_key >= p.keys) continue;
      const bool is_kept = in.keep == nullptr || in.keep[item * p.keys + at_key] != 0;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if (tx + 16 * c >= p.depth) continue;
        const int64_t at = p.offset(p.keys, b, at_key, head) + tx + 16 * c;
        to.dk[at] = simt::from_float<T>(p.scale * dk[i][c]);
        to.dv[at] = simt::from_float<T>(is_kept ? p.keep_scale * dv[i][c] : 0.0F);
      }
    }
  }
}

__global__ void zero_kernel(float* x, int64_t count) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride)
    x[i] = 0;
}

template <typename T, int kRows, int kColumns>
void launch_backward(const Problem& p, const Operands<T>& in, const Results<T>& to, Stream stream) {
  constexpr int kTile = 16 * kRows;
  const size_t floats =
      4 * kTile * static_cast<size_t>(p.depth | 1) + 2 * kTile * (kTile + 1) + 2 * kTile;
  simt::launch(backward_kernel<T, kRows, kColumns>,
               simt::Launch{.grid = dim3(static_cast<unsigned>(p.heads * p.batch)),
                            .block = dim3(kGeneralThreads),
                            .shared = floats * sizeof(float),
                            .stream = stream},
               p, in, to);
}

template <typename T>
void backward_of(const Prepared& prepared, const Statistics& s, const void* dout, void* dq,
                 void* dk, void* dv, float* dtable, Stream stream) {
  const Problem& p = prepared.problem;
  const Operands<T> in{static_cast<const T*>(prepared.q),
                       static_cast<const T*>(prepared.k),
                       static_cast<const T*>(prepared.v),
                       static_cast<const T*>(dout),
                       prepared.keep,
                       prepared.bias_diagonals,
                       s,
                       padded_queries(p.queries)};
  Results<T> to{static_cast<T*>(dq), static_cast<T*>(dk), static_cast<T*>(dv), nullptr, nullptr};
  if constexpr (std::is_same_v<T, float>)
    to.dq_sums = to.dq;
  else
    to.dq_sums =
        prepared.scratch<float>(static_cast<int64_t>(p.batch) * p.queries * p.heads * p.depth);
  if (dtable != nullptr) {
    const int64_t floats = static_cast<int64_t>(p.batch) * p.heads * prepared.diagonals_length();
    to.dbias_diagonals = prepared.scratch<float>(floats);
    simt::launch(zero_kernel, simt::Launch{.grid = dim3(64), .block = dim3(256), .stream = stream},
                 to.dbias_diagonals, floats);
  }
  if (p.depth <= 64)
    launch_backward<T, 4, 4>(p, in, to, stream);
  else
    launch_backward<T, 2, 16>(p, in, to, stream);
  if (dtable != nullptr) reduce_bias_diagonals(prepared, to.dbias_diagonals, 1, dtable, stream);
}

}  // namespace

void backward_general(const Prepared& p, const Statistics& s, const void* dout, void* dq, void* dk,
                      void* dv, float* dtable, Stream stream) {
  if (p.dtype == DType::f32)
    backward_of<float>(p, s, dout, dq, dk, dv, dtable, stream);
  else
    backward_of<bf16>(p, s, dout, dq, dk, dv, dtable, stream);
}

}  // namespace quintet::QT_GPU::attention
