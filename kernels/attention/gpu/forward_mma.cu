// Forward pass for sm_80 and later: mma.sync, cp.async, keys and values in two buffers each.

#include "kernels/attention/attention.h"
#include "kernels/attention/gpu/fragment.cuh"
#include "kernels/attention/gpu/mma.cuh"
#include "kernels/attention/gpu/tensor_core.cuh"

namespace quintet::QT_GPU::attention {
namespace {

// A block takes kRows queries of a head, kBlocks x 16 of them a warp.
template <int kDepth>
struct Shape {
  static constexpr int kRows = 128, kKeys = 64;
  static constexpr int kBlocks = kDepth == 64 ? 2 : 1;
  static constexpr int kThreads = kRows / (16 * kBlocks) * 32;
  static constexpr size_t kQueryBytes = sizeof(bf16) * kRows * kDepth;
  static constexpr size_t kTileBytes = sizeof(bf16) * kKeys * kDepth;
  static constexpr size_t kDiagonalsAt = kQueryBytes + 4 * kTileBytes;
};

// Results of 16 rows to global memory.
template <int kDepth>
__device__ void store_rows(const Problem& p, int b, int head, int query, const float* sums,
                           const RunningSoftmax& softmax, bf16* out, float* lse) {
  const int c = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = query + 8 * half;
    if (i >= p.queries) continue;
    const float share = softmax.share(half) * p.keep_scale;
    auto* to = reinterpret_cast<uint32_t*>(out + p.offset(p.queries, b, i, head));
#pragma unroll
    for (int j = 0; j < kDepth / 8; ++j)
      if (8 * j < p.depth)
        to[4 * j + c] =
            simt::pack_bf16(sums[4 * j + 2 * half] * share, sums[4 * j + 2 * half + 1] * share);
    if (lse != nullptr && c == 0)
      lse[(static_cast<int64_t>(b) * p.heads + head) * p.queries + i] =
          row_keys(p, b, i).none ? kMaskedScore : softmax.log_sum(half);
  }
}

template <int kDepth>
__global__ void __launch_bounds__(Shape<kDepth>::kThreads)
    forward_kernel(const __grid_constant__ Problem p, const bf16* q, const bf16* k, const bf16* v,
                   bf16* out, float* lse) {
  using S = Shape<kDepth>;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int tiles = (p.queries + S::kRows - 1) / S::kRows;
  const int first = static_cast<int>(blockIdx.x) % tiles * S::kRows;
  const int head = static_cast<int>(blockIdx.x) / tiles % p.heads;
  const int b = static_cast<int>(blockIdx.x) / tiles / p.heads;
  auto q_tile = simt::shared<bf16>(0, S::kRows * kDepth);
  const auto kv_tile = [](int is_value, int buffer) {
    return simt::shared<bf16>(S::kQueryBytes + (2 * is_value + buffer) * S::kTileBytes,
                              S::kKeys * kDepth);
  };
  const bool has_bias = p.table != nullptr;
  const BiasDiagonals head_diagonals(has_bias ? p.reach : 0, S::kRows, S::kKeys, S::kDiagonalsAt);
  if (has_bias) head_diagonals.load(p, head, 1, S::kDiagonalsAt);

  const TileKeys hull = tile_keys(p, b, first, S::kRows);
  const int begin = hull.begin / S::kKeys, end = (hull.end + S::kKeys - 1) / S::kKeys;
  const auto copy = [&](const bf16* x, int is_value, int n) {
    if (n < end)
      copy_rows<kDepth, S::kKeys, S::kThreads>(p, x, p.keys, b, head, n * S::kKeys,
                                               kv_tile(is_value, n % 2));
    simt::cp_async_commit();
  };
  copy_rows<kDepth, S::kRows, S::kThreads>(p, q, p.queries, b, head, first, q_tile);
  copy(k, 0, begin);
  copy(v, 1, begin);

  const int row = warp * 16 * S::kBlocks;
  float sums[S::kBlocks][kDepth / 2];
  RunningSoftmax softmax[S::kBlocks];
#pragma unroll
  for (int m = 0; m < S::kBlocks; ++m)
#pragma unroll
    for (int i = 0; i < kDepth / 2; ++i) sums[m][i] = 0;
  const float scale = p.scale * kLog2E;
  for (int n = begin; n < end; ++n) {
    simt::cp_async_wait<1>();
    __syncthreads();  // keys n are here, those before n have been read by all
    copy(k, 0, n + 1);
    const int key = n * S::kKeys;
    float scores[S::kBlocks][S::kKeys / 2] = {};
    if (has_bias) {
      const int entry = head_diagonals.entry(key + p.first_relative - first) + 2 * (lane % 4);
#pragma unroll
      for (int m = 0; m < S::kBlocks; ++m)
        head_diagonals.template fill<S::kKeys / 8>(scores[m], entry - (row + 16 * m + lane / 4));
    }
    const auto keys = kv_tile(0, n % 2);
#pragma unroll 2  // all at once need more registers than there are
    for (int i = 0; i < kDepth / 16; ++i) {
      uint32_t queries[S::kBlocks][4];
#pragma unroll
      for (int m = 0; m < S::kBlocks; ++m) load_a<kDepth>(q_tile, row + 16 * m, i, queries[m]);
#pragma unroll
      for (int j = 0; j < S::kKeys / 16; ++j) {
        uint32_t operand[4];
        load_b<kDepth>(keys, 16 * j, i, operand);
#pragma unroll
        for (int m = 0; m < S::kBlocks; ++m) multiply_add(scores[m], j, queries[m], operand);
      }
    }
    const bool is_full = key >= hull.inner_begin && key + S::kKeys <= hull.inner_end;
#pragma unroll
    for (int m = 0; m < S::kBlocks; ++m) {
      const int r = row + 16 * m + lane / 4, c = lane % 4;
      if (!is_full)
        apply_mask<S::kKeys / 8>(mask_of<S::kKeys / 8>(p, b, first + r, key + 2 * c), scores[m]);
      float exponent[2];
      if (softmax[m].template advance<S::kKeys / 8>(scores[m], scale, exponent)) {
        float factors[2];
        softmax[m].rescale_totals(exponent, factors);
        softmax[m].rescale(factors, sums[m]);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        softmax[m].template weigh<S::kKeys / 8>(half, scores[m]);
        softmax[m].template add<S::kKeys / 8>(half, scores[m]);
      }
    }
    simt::cp_async_wait<1>();
    __syncthreads();  // values n are here, those before n have been read by all
    copy(v, 1, n + 1);
    const auto values = kv_tile(1, n % 2);
#pragma unroll
    for (int i = 0; i < S::kKeys / 16; ++i) {
      uint32_t weights[S::kBlocks][4];
#pragma unroll
      for (int m = 0; m < S::kBlocks; ++m) to_operand(scores[m], i, weights[m]);
#pragma unroll
      for (int j = 0; j < kDepth / 16; ++j) {
        uint32_t operand[4];
        load_b_transposed<kDepth>(values, 16 * j, i, operand);
#pragma unroll
        for (int m = 0; m < S::kBlocks; ++m) multiply_add(sums[m], j, weights[m], operand);
      }
    }
  }
  simt::cp_async_wait<0>();
#pragma unroll
  for (int m = 0; m < S::kBlocks; ++m) {
    softmax[m].finish();
    store_rows<kDepth>(p, b, head, first + row + 16 * m + lane / 4, sums[m], softmax[m], out, lse);
  }
}

template <int kDepth>
void launch_forward(const Prepared& prepared, bf16* out, float* lse, Stream stream) {
  using S = Shape<kDepth>;
  const Problem& p = prepared.problem;
  const int tiles = (p.queries + S::kRows - 1) / S::kRows;
  const int reach = p.table == nullptr ? 0 : p.reach;
  simt::launch(
      forward_kernel<kDepth>,
      simt::Launch{.grid = dim3(static_cast<unsigned>(tiles * p.heads * p.batch)),
                   .block = dim3(S::kThreads),
                   .shared = S::kDiagonalsAt + BiasDiagonals::bytes(reach, S::kRows, S::kKeys),
                   .stream = stream},
      p, static_cast<const bf16*>(prepared.q), static_cast<const bf16*>(prepared.k),
      static_cast<const bf16*>(prepared.v), out, lse);
}

}  // namespace

void forward_mma(const Prepared& p, bf16* out, float* lse, Stream stream) {
  if (p.problem.depth <= 64)
    launch_forward<64>(p, out, lse, stream);
  else
    launch_forward<128>(p, out, lse, stream);
}

}  // namespace quintet::QT_GPU::attention
