// Gradients for sm_80 and later: mma.sync, cp.async. Scores are computed transposed (rows are
// keys), so that weights and their gradients are operands of the products for dv and dk without
// leaving the registers; for dq and the bias they go through shared memory.

#include "kernels/attention/gpu/backward.cuh"
#include "kernels/attention/gpu/mma.cuh"

namespace quintet::QT_GPU::attention {
namespace {

struct GradientOperands {
  const bf16 *q, *k, *v, *dout;
  const uint8_t* keep;  // null: no dropout
  const float *lse, *delta;
  int64_t statistics_stride;  // padded queries
};

GradientOperands gradient_operands(const Prepared& p, const Statistics& s, const bf16* dout) {
  return {static_cast<const bf16*>(p.q),
          static_cast<const bf16*>(p.k),
          static_cast<const bf16*>(p.v),
          dout,
          p.keep,
          s.lse,
          s.delta,
          padded_queries(p.problem.queries)};
}

constexpr int kThreads = 256, kKeys = 128, kQueries = 64;

// Offsets in shared memory. A warp owns 16 keys; for dq it owns 16 queries and half of the columns.
template <int kDepth>
struct Shape {
  static constexpr size_t kKeyBytes = sizeof(bf16) * kKeys * kDepth;
  static constexpr size_t kQueryBytes = sizeof(bf16) * kQueries * kDepth;
  static constexpr size_t kQueriesAt = 2 * kKeyBytes;  // q, dout; twice
  static constexpr size_t kScoresAt = kQueriesAt + 4 * kQueryBytes;
  static constexpr size_t kStatisticsAt = kScoresAt + sizeof(bf16) * kKeys * kQueries;
  static constexpr size_t kDiagonalsAt = kStatisticsAt + sizeof(float) * 4 * kQueries;
  static constexpr int kSums = kDepth / 4;  // of dq, a thread
  // Queries whose scores are in registers at a time.
  static constexpr int kChunk = kQueries / 2;
};

template <int kDepth>
__device__ int64_t sums_at(const Problem& p, int64_t item, int parts, int part, int tile) {
  const int tiles = (p.queries + kQueries - 1) / kQueries;
  return ((item * parts + part) * tiles + tile) * (Shape<kDepth>::kSums / 4 * kThreads) +
         threadIdx.x;
}

template <int kDepth>
__device__ void store_dq(const Problem& p, int b, int head, int first,
                         const float (&sums)[kDepth / 4], bf16* dq) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int column = warp / 4 * (kDepth / 2) + 2 * (lane % 4);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = first + warp % 4 * 16 + lane / 4 + 8 * half;
    if (query >= p.queries) continue;
    bf16* to = dq + p.offset(p.queries, b, query, head);
#pragma unroll
    for (int j = 0; j < kDepth / 16; ++j)
      if (column + 8 * j < p.depth)
        *reinterpret_cast<uint32_t*>(to + column + 8 * j) =
            simt::pack_bf16(p.scale * sums[4 * j + 2 * half], p.scale * sums[4 * j + 2 * half + 1]);
  }
}

// dk or dv of a warp's 16 keys, multiplied with `factor`; rows that `keep` drops become 0.
template <int kDepth>
__device__ void store_keys(const Problem& p, int b, int head, int first,
                           const float (&sums)[kDepth / 2], float factor, const uint8_t* keep,
                           bf16* to) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int key = first + lane / 4 + 8 * half;
    if (key >= p.keys) continue;
    const bool is_kept =
        keep == nullptr || keep[(static_cast<int64_t>(b) * p.heads + head) * p.keys + key] != 0;
    bf16* row = to + p.offset(p.keys, b, key, head) + 2 * (lane % 4);
#pragma unroll
    for (int j = 0; j < kDepth / 8; ++j)
      if (8 * j < p.depth)
        *reinterpret_cast<uint32_t*>(row + 8 * j) =
            is_kept ? simt::pack_bf16(factor * sums[4 * j + 2 * half],
                                      factor * sums[4 * j + 2 * half + 1])
                    : 0U;
  }
}

// sums += rows [row, row + 16) of a times kCount rows of b from b_row on, over kDepth columns.
template <int kDepth, int kCount>
__device__ void row_products(simt::Shared<bf16> a, int row, simt::Shared<bf16> b, int b_row,
                             float (&sums)[kCount / 2]) {
#pragma unroll 2  // all at once need more registers than there are
  for (int i = 0; i < kDepth / 16; ++i) {
    uint32_t left[4];
    load_a<kDepth>(a, row, i, left);
#pragma unroll
    for (int j = 0; j < kCount / 16; ++j) {
      uint32_t right[4];
      load_b<kDepth>(b, b_row + 16 * j, i, right);
      multiply_add(sums, j, left, right);
    }
  }
}

// sums += w x, with w a warp's 16 rows of kCount in registers, x kCount rows from x_row on.
template <int kDepth, int kCount>
__device__ void accumulate(const float (&w)[kCount / 2], simt::Shared<bf16> x, int x_row,
                           float (&sums)[kDepth / 2]) {
#pragma unroll
  for (int i = 0; i < kCount / 16; ++i) {
    uint32_t left[4];
    to_operand(w, i, left);
#pragma unroll
    for (int j = 0; j < kDepth / 16; ++j) {
      uint32_t right[4];
      load_b_transposed<kDepth>(x, 16 * j, x_row / 16 + i, right);
      multiply_add(sums, j, left, right);
    }
  }
}

template <int kDepth>
__global__ void __launch_bounds__(kThreads, 1)
    backward_kernel(const __grid_constant__ Problem p, GradientOperands in, GradientResults to,
                    int parts) {
  using S = Shape<kDepth>;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int part = static_cast<int>(blockIdx.x) % parts;
  const int item = static_cast<int>(blockIdx.x) / parts, head = item % p.heads;
  const int b = item / p.heads;
  const int tiles = (p.queries + kQueries - 1) / kQueries;
  const Part blocks = part_of((p.keys + kKeys - 1) / kKeys, parts, part);
  auto k_tile = simt::shared<bf16>(0, kKeys * kDepth);
  auto v_tile = simt::shared<bf16>(S::kKeyBytes, kKeys * kDepth);
  auto dscores = simt::shared<bf16>(S::kScoresAt, kKeys * kQueries);
  const auto q_tile = [](int buffer, int is_dout) {
    return simt::shared<bf16>(S::kQueriesAt + (2 * buffer + is_dout) * S::kQueryBytes,
                              kQueries * kDepth);
  };
  const auto statistics = [](int buffer) {  // lse, then delta
    return S::kStatisticsAt + sizeof(float) * 2 * kQueries * buffer;
  };
  const bool has_bias = p.table != nullptr;
  const int reach = has_bias ? p.reach : 0;
  const BiasDiagonals head_diagonals(reach, kKeys, kQueries, S::kDiagonalsAt);
  const DiagonalsGradient dhead_diagonals(
      head_diagonals, S::kDiagonalsAt + BiasDiagonals::bytes(reach, kKeys, kQueries));
  if (has_bias) head_diagonals.load(p, head, -1, S::kDiagonalsAt);
  if (to.dbias_diagonals != nullptr) dhead_diagonals.clear();

  const auto next_tile = [&](int block, int tile) {  // the first from `tile` on that needs block
    for (; tile < tiles; ++tile) {
      const Part seen = visits(tile_keys(p, b, tile * kQueries, kQueries), kKeys, blocks);
      if (block >= seen.begin && block < seen.end) break;
    }
    return tile;
  };
  const auto copy = [&](int tile, int buffer) {
    if (tile < tiles) {
      const int first = tile * kQueries;
      copy_rows<kDepth, kQueries, kThreads>(p, in.q, p.queries, b, head, first, q_tile(buffer, 0));
      copy_rows<kDepth, kQueries, kThreads>(p, in.dout, p.queries, b, head, first,
                                            q_tile(buffer, 1));
      if (threadIdx.x < kQueries / 2) {  // 16 bytes each of lse or delta
        const int i = static_cast<int>(threadIdx.x), is_delta = i / (kQueries / 4);
        const float* from = (is_delta != 0 ? in.delta : in.lse) + item * in.statistics_stride +
                            first + i % (kQueries / 4) * 4;
        simt::cp_async_16(&simt::shared<float>(statistics(buffer), 2 * kQueries)[4 * i], from);
      }
    }
    simt::cp_async_commit();
  };

  for (int block = blocks.begin; block < blocks.end; ++block) {
    const int key0 = block * kKeys;
    __syncthreads();
    copy_rows<kDepth, kKeys, kThreads>(p, in.k, p.keys, b, head, key0, k_tile);
    copy_rows<kDepth, kKeys, kThreads>(p, in.v, p.keys, b, head, key0, v_tile);
    float dk[kDepth / 2] = {}, dv[kDepth / 2] = {};
    int tile = next_tile(block, 0), buffer = 0;
    copy(tile, buffer);
    while (tile < tiles) {
      const int next = next_tile(block, tile + 1), first = tile * kQueries;
      simt::cp_async_wait<0>();
      __syncthreads();  // this tile is here; the last one and its gradients have been read by all
      copy(next, 1 - buffer);
      const TileKeys keys = tile_keys(p, b, first, kQueries);
      const auto queries = q_tile(buffer, 0), douts = q_tile(buffer, 1);
      const int r = warp * 16 + lane / 4, c = lane % 4;
      const int entry = head_diagonals.entry(first - key0 - p.first_relative);
      const bool is_masked = key0 < keys.inner_begin || key0 + kKeys > keys.inner_end;
      MaskBits mask{};
      if (is_masked) mask = mask_transposed<kQueries / 8>(p, b, first, key0, r, lane);
      const size_t at = statistics(buffer);
      const auto lse = simt::shared<float2>(at, kQueries / 2);
      const auto delta = simt::shared<float2>(at + sizeof(float) * kQueries, kQueries / 2);
#pragma unroll 1
      for (int from = 0; from < kQueries; from += S::kChunk) {
        constexpr int kFragments = S::kChunk / 8;
        float scores[S::kChunk / 2] = {}, dweights[S::kChunk / 2] = {};
        if (has_bias) head_diagonals.template fill<kFragments>(scores, entry + from + 2 * c - r);
        row_products<kDepth, S::kChunk>(k_tile, warp * 16, queries, from, scores);
        if (is_masked)
          apply_mask<kFragments>({{mask.in[0] >> from / 4, mask.in[1] >> from / 4},
                                  {mask.none[0] >> from / 4, mask.none[1] >> from / 4}},
                                 scores);
        weights_transposed<kFragments>(scores, p.scale * kLog2E, lse + from / 2, c);
        row_products<kDepth, S::kChunk>(v_tile, warp * 16, douts, from, dweights);
        const auto weights = [&](int j, int half) {
          return make_float2(scores[4 * j + 2 * half], scores[4 * j + 2 * half + 1]);
        };
        differentiate_transposed<kFragments>(weights, dweights, delta + from / 2, p.keep_scale, c);
#pragma unroll
        for (int j = 0; j < kFragments; ++j)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int row = r + 8 * half;
            *reinterpret_cast<uint32_t*>(&dscores[at_chunk<kQueries>(row, from / 8 + j) + 2 * c]) =
                simt::pack_bf16(dweights[4 * j + 2 * half], dweights[4 * j + 2 * half + 1]);
          }
        accumulate<kDepth, S::kChunk>(scores, douts, from, dv);
        accumulate<kDepth, S::kChunk>(dweights, queries, from, dk);
      }

      const Part seen = visits(keys, kKeys, blocks);
      float4* saved = to.dq_sums + sums_at<kDepth>(p, item, parts, part, tile);
      float dq[S::kSums] = {};
      if (block != seen.begin)
#pragma unroll
        for (int i = 0; i < S::kSums / 4; ++i) {
          const float4 x = saved[i * kThreads];
          dq[4 * i] = x.x, dq[4 * i + 1] = x.y, dq[4 * i + 2] = x.z, dq[4 * i + 3] = x.w;
        }
      __syncthreads();  // gradients of scores are here
#pragma unroll 2
      for (int i = 0; i < kKeys / 16; ++i) {
        uint32_t left[4];
        load_a_transposed<kQueries>(dscores, warp % 4 * 16, i, left);
#pragma unroll
        for (int j = 0; j < kDepth / 32; ++j) {
          uint32_t right[4];
          load_b_transposed<kDepth>(k_tile, warp / 4 * (kDepth / 2) + 16 * j, i, right);
          multiply_add(dq, j, left, right);
        }
      }
      if (block == seen.end - 1 && parts == 1)
        store_dq<kDepth>(p, b, head, first, dq, to.dq);
      else
#pragma unroll
        for (int i = 0; i < S::kSums / 4; ++i)
          saved[i * kThreads] = make_float4(dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
      if (to.dbias_diagonals != nullptr)
        dhead_diagonals.template add<kKeys>(first - key0 - p.first_relative,
                                            static_cast<int>(threadIdx.x), kThreads,
                                            simt::shared_cast<uint32_t>(dscores));
      tile = next;
      buffer = 1 - buffer;
    }
    simt::cp_async_wait<0>();
    store_keys<kDepth>(p, b, head, key0 + warp * 16, dk, p.scale, nullptr, to.dk);
    store_keys<kDepth>(p, b, head, key0 + warp * 16, dv, p.keep_scale, in.keep, to.dv);
  }
  if (to.dbias_diagonals == nullptr) return;
  __syncthreads();
  dhead_diagonals.store(to.dbias_diagonals + static_cast<int64_t>(blockIdx.x) * (2 * p.reach + 1));
}

// dq of the parts that have to do with it, added in order. A block a tile of queries of a head.
template <int kDepth>
__global__ void __launch_bounds__(kThreads)
    add_parts_kernel(const __grid_constant__ Problem p, GradientResults to, int parts) {
  const int tiles = (p.queries + kQueries - 1) / kQueries;
  const int tile = static_cast<int>(blockIdx.x) % tiles;
  const int item = static_cast<int>(blockIdx.x) / tiles, head = item % p.heads;
  const int b = item / p.heads;
  const TileKeys keys = tile_keys(p, b, tile * kQueries, kQueries);
  float sums[kDepth / 4] = {};
  for (int part = 0; part < parts; ++part) {
    const Part seen = visits(keys, kKeys, part_of((p.keys + kKeys - 1) / kKeys, parts, part));
    if (seen.begin >= seen.end) continue;
    const float4* from = to.dq_sums + sums_at<kDepth>(p, item, parts, part, tile);
#pragma unroll
    for (int i = 0; i < kDepth / 16; ++i) {
      const float4 x = from[i * kThreads];
      sums[4 * i] += x.x, sums[4 * i + 1] += x.y, sums[4 * i + 2] += x.z, sums[4 * i + 3] += x.w;
    }
  }
  store_dq<kDepth>(p, b, head, tile * kQueries, sums, to.dq);
}

template <int kDepth>
void launch_backward(const Prepared& prepared, const GradientOperands& in, GradientResults to,
                     float* dtable, Stream stream) {
  using S = Shape<kDepth>;
  const Problem& p = prepared.problem;
  const int64_t items = static_cast<int64_t>(p.batch) * p.heads;
  const int64_t tiles = (p.queries + kQueries - 1) / kQueries;
  const int parts = best_parts(items, (p.keys + kKeys - 1) / kKeys, simt::device().multiprocessors);
  to.dq_sums = prepared.scratch<float4>(items * parts * tiles * (S::kSums / 4 * kThreads));
  if (dtable != nullptr)
    to.dbias_diagonals = prepared.scratch<float>(items * parts * prepared.diagonals_length());
  const size_t head_diagonals =
      BiasDiagonals::bytes(p.table == nullptr ? 0 : p.reach, kKeys, kQueries);
  simt::launch(backward_kernel<kDepth>,
               simt::Launch{.grid = dim3(static_cast<unsigned>(items * parts)),
                            .block = dim3(kThreads),
                            .shared = S::kDiagonalsAt + 2 * head_diagonals,
                            .stream = stream},
               p, in, to, parts);
  if (parts > 1)
    simt::launch(add_parts_kernel<kDepth>,
                 simt::Launch{.grid = dim3(static_cast<unsigned>(items * tiles)),
                              .block = dim3(kThreads),
                              .stream = stream},
                 p, to, parts);
  if (dtable != nullptr) reduce_bias_diagonals(prepared, to.dbias_diagonals, parts, dtable, stream);
}

}  // namespace

void backward_mma(const Prepared& p, const Statistics& s, const bf16* dout, bf16* dq, bf16* dk,
                  bf16* dv, float* dtable, Stream stream) {
  const GradientOperands in = gradient_operands(p, s, dout);
  const GradientResults to{dq, dk, dv, nullptr, nullptr};
  if (p.problem.depth <= 64)
    launch_backward<64>(p, in, to, dtable, stream);
  else
    launch_backward<128>(p, in, to, dtable, stream);
}

}  // namespace quintet::QT_GPU::attention
