// Forward pass for sm_90a: one warp copies tiles (TMA), two warpgroups multiply (wgmma) 64 queries
// each. Blocks are persistent: the copies of the next tile of queries begin while this one is being
// finished, and its first product runs while this one's results are stored. Products of one block of
// keys run while the softmax of the next is computed.

#include "kernels/attention/attention.h"
#include "kernels/attention/gpu/fragment.cuh"
#include "kernels/attention/gpu/tensor_core.cuh"
#include "kernels/attention/gpu/wgmma_tiles.cuh"

namespace quintet::QT_GPU::attention {
namespace {

constexpr int kRows = 128, kKeys = 128, kThreads = 3 * kGroup;

template <int kDepth>
struct Shape {
  static constexpr int kStages = kDepth == 64 ? 4 : 2;
  static constexpr int kTile = kRows * kDepth;  // elements; tiles of keys are as large
  static constexpr size_t kTileBytes = sizeof(bf16) * kTile;
  static constexpr size_t kKeysAt = 2 * kTileBytes;
  static constexpr size_t kValuesAt = kKeysAt + kStages * kTileBytes;
  static constexpr size_t kBarriersAt = kValuesAt + kStages * kTileBytes;
  static constexpr int kBarriers = 4 * kStages + 4;
  static constexpr size_t kWorkAt = kBarriersAt + 8 * ((kBarriers + 1) / 2 * 2);
  static constexpr size_t kDiagonalsAt = kWorkAt + 2 * 32;
};
static_assert(kRows == kKeys);

struct Maps {
  simt::TensorMap q, k, v, out;
};

#if QT_SM90A

template <int kDepth>
struct Barriers {
  using S = Shape<kDepth>;
  simt::Shared<uint64_t> all;
  __device__ Barriers() : all(simt::shared<uint64_t>(S::kBarriersAt, S::kBarriers)) {}
  __device__ uint64_t* keys_full(int stage) const { return &all[stage]; }
  __device__ uint64_t* keys_empty(int stage) const { return &all[S::kStages + stage]; }
  __device__ uint64_t* values_full(int stage) const { return &all[2 * S::kStages + stage]; }
  __device__ uint64_t* values_empty(int stage) const { return &all[3 * S::kStages + stage]; }
  __device__ uint64_t* queries_full(int buffer) const { return &all[4 * S::kStages + buffer]; }
  __device__ uint64_t* queries_empty(int buffer) const { return &all[4 * S::kStages + 2 + buffer]; }
  __device__ void init() const {
    for (int i = 0; i < S::kStages; ++i) {
      simt::mbarrier_init(keys_full(i), 1);
      simt::mbarrier_init(values_full(i), 1);
      simt::mbarrier_init(keys_empty(i), 8);  // a thread of each consuming warp
      simt::mbarrier_init(values_empty(i), 8);
    }
    for (int i = 0; i < 2; ++i) {
      simt::mbarrier_init(queries_full(i), 1);
      simt::mbarrier_init(queries_empty(i), 2);  // a thread of each consuming warpgroup
    }
    simt::fence_barrier_init();
  }
};

// A tile of queries of a head, and its keys. Heads change slowest, so that a block rarely needs other diagonals.
struct alignas(16) Work {
  TileKeys keys;
  int head, b, first;
  __device__ Work(const Problem& p, int item, int tiles)
      : head(item / tiles / p.batch), b(item / tiles % p.batch), first(item % tiles * kRows) {
    keys = tile_keys(p, b, first, kRows);
  }
  __device__ int begin() const { return keys.begin / kKeys; }  // blocks of keys
  __device__ int end() const { return (keys.end + kKeys - 1) / kKeys; }
};
// Of the tile in a buffer of queries. Written by the thread that copies the tile, before the buffer is full:
// it has time for the divisions and for the reads of global memory.
template <int kDepth>
__device__ Work& work_in(int buffer) {
  using S = Shape<kDepth>;
  static_assert(S::kWorkAt + 2 * sizeof(Work) <= S::kDiagonalsAt);
  return simt::shared<Work>(S::kWorkAt, 2)[buffer];
}

template <int kDepth>
__device__ void produce(const Problem& p, const Maps& maps, int item, int end, int tiles) {
  using S = Shape<kDepth>;
  const Barriers<kDepth> barriers;
  Cursor<S::kStages> at;
  Cursor<2> queries;
  for (; item < end; ++item, queries.advance()) {
    const Work work(p, item, tiles);
    simt::mbarrier_wait(barriers.queries_empty(queries.stage()), queries.parity() ^ 1U);
    work_in<kDepth>(queries.stage()) = work;
    simt::mbarrier_arrive_expect_tx(barriers.queries_full(queries.stage()), S::kTileBytes);
    load_tile<kRows, kDepth>(simt::shared<bf16>(queries.stage() * S::kTileBytes, S::kTile), maps.q,
                             barriers.queries_full(queries.stage()), work.head, work.first, work.b);
    for (int n = work.begin(); n < work.end(); ++n, at.advance()) {
      simt::mbarrier_wait(barriers.keys_empty(at.stage()), at.parity() ^ 1U);
      simt::mbarrier_arrive_expect_tx(barriers.keys_full(at.stage()), S::kTileBytes);
      load_tile<kKeys, kDepth>(
          simt::shared<bf16>(S::kKeysAt + at.stage() * S::kTileBytes, S::kTile), maps.k,
          barriers.keys_full(at.stage()), work.head, n * kKeys, work.b);
      simt::mbarrier_wait(barriers.values_empty(at.stage()), at.parity() ^ 1U);
      simt::mbarrier_arrive_expect_tx(barriers.values_full(at.stage()), S::kTileBytes);
      load_tile<kKeys, kDepth>(
          simt::shared<bf16>(S::kValuesAt + at.stage() * S::kTileBytes, S::kTile), maps.v,
          barriers.values_full(at.stage()), work.head, n * kKeys, work.b);
    }
  }
}

// One warpgroup's part: rows [64 group, 64 group + 64) of each tile of queries.
template <int kDepth, bool kBias, bool kPingPong>
class Consumer {
  using S = Shape<kDepth>;
  static constexpr int kPairs = kBias ? kKeys / 8 + 1 : 1;

 public:
  __device__ Consumer(const Problem& problem, const Maps& its_maps, float* its_lse)
      : p(problem),
        maps(its_maps),
        lse(its_lse),
        head_diagonals(kBias ? problem.reach : 0, kRows, kKeys, S::kDiagonalsAt),
        thread(static_cast<int>(threadIdx.x) % kGroup),
        group(static_cast<int>(threadIdx.x) / kGroup - 1) {}

  __device__ void run(int items) {
    if (items == 0) return;
    if (kPingPong && group == 1) ping_pong_arrive();  // the first one goes first
    float scores[kKeys / 2];
    uint32_t weights[kKeys / 16][4];
    Work work = next_work();
    issue_first_scores(scores);
    if (kBias) load_diagonals(work.head);
    for (;;) {
      attend_first(work, scores, weights);
      attend(work, scores, weights);
      simt::mbarrier_wait(barriers.values_full(at.stage()), at.parity());
      simt::wgmma_fence_registers(sums);
      simt::wgmma_fence();
      issue_sums(weights, at.stage());
      const Work done = work;
      const Cursor<S::kStages> last = at;
      at.advance();
      queries.advance();
      if (--items > 0) work = next_work();
      // Behind the last tile too, where nobody reads these scores: ptxas serialises all products if only a branch
      // begins this one.
      issue_first_scores(scores);
      simt::wgmma_wait<1>();
      simt::wgmma_fence_registers(sums);
      release(barriers.values_empty(last.stage()));
      store(done, queries.stage() ^ 1);
      if (items == 0) break;
      if (kBias && work.head != done.head) load_diagonals(work.head);
    }
    simt::wgmma_wait<0>();
    if (kPingPong && group == 0) ping_pong_wait();
    if (thread == 0) simt::tma_store_wait_read<0>();
  }

 private:
  // Ping-pong: one warpgroup multiplies while the other computes its weights.
  __device__ void ping_pong_wait() const { simt::named_barrier_sync(4 + group, 2 * kGroup); }
  __device__ void ping_pong_arrive() const { simt::named_barrier_arrive(5 - group, 2 * kGroup); }

  // The diagonals are loaded by both warpgroups, which must have left the last one.
  __device__ void load_diagonals(int head) const {
    simt::named_barrier_sync(1, 2 * kGroup);
    head_diagonals.load(p, head, 1, S::kDiagonalsAt, static_cast<int>(threadIdx.x) - kGroup,
                        2 * kGroup);
    simt::named_barrier_sync(1, 2 * kGroup);
  }
  __device__ simt::Shared<bf16> tile(size_t at, int stage) const {
    return simt::shared<bf16>(at + stage * S::kTileBytes, S::kTile);
  }
  __device__ static void release(uint64_t* bar) {
    if (threadIdx.x % 32 == 0) simt::mbarrier_arrive(bar);
  }
  // Loads the bias of block n, while its product runs.
  __device__ void read_bias(const Work& work, int n, float2 (&bias)[kPairs]) const {
    const int lane = thread % 32, row = 64 * group + thread / 32 * 16 + lane / 4;
    if constexpr (kBias)
      head_diagonals.read(bias, head_diagonals.entry(n * kKeys + p.first_relative - work.first) +
                                    2 * (lane % 4) - row);
  }
  // The tile whose queries are next in the ring, when they and its first keys are there.
  __device__ Work next_work() const {
    simt::mbarrier_wait(barriers.queries_full(queries.stage()), queries.parity());
    const Work work = work_in<kDepth>(queries.stage());
    simt::mbarrier_wait(barriers.keys_full(at.stage()), at.parity());
    return work;
  }
  // Issues scores = q k^T, when the keys are there.
  __device__ void issue_scores(float (&scores)[kKeys / 2], int stage) const {
    if (kPingPong) ping_pong_wait();
    simt::wgmma_fence_registers(scores);
    simt::wgmma_fence();
    const auto q = tile(0, queries.stage()), k = tile(S::kKeysAt, stage);
#pragma unroll
    for (int i = 0; i < kDepth / 16; ++i)
      simt::wgmma<kKeys>(scores, terms_in_columns<kRows>(q, 64 * group, i),
                         terms_in_columns<kKeys>(k, 0, i), i > 0);
    simt::wgmma_commit();
  }
  // Issues sums += weights v.
  __device__ void issue_sums(const uint32_t (&weights)[kKeys / 16][4], int stage) {
    const auto v = tile(S::kValuesAt, stage);
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i)
      simt::wgmma<kDepth, true>(sums, weights[i], terms_in_rows<kKeys>(v, i), true);
    simt::wgmma_commit();
  }
  // Products of block n become exponents of its weights: bias, mask, shift. Whether earlier sums have to be
  // rescaled. Where nothing is masked, the bias is added between the comparisons, in slots that they leave.
  __device__ bool advance(const Work& work, int n, float2 (&bias)[kPairs],
                          float (&scores)[kKeys / 2], float (&exponent)[2]) {
    const int lane = thread % 32, row = 64 * group + thread / 32 * 16 + lane / 4;
    const int key = n * kKeys, c = 2 * (lane % 4);
    if (key < work.keys.inner_begin || key + kKeys > work.keys.inner_end) {
      if constexpr (kBias) {
        add_bias<kKeys / 8>(bias, scores);
#pragma unroll
        for (float2& pair : bias) pair = {0, 0};  // added below to what is masked
      }
      const MaskBits mask = mask_of<kKeys / 8>(p, work.b, work.first + row, key + c);
      apply_mask<kKeys / 8>(mask, scores);
#pragma unroll
      for (int half = 0; half < 2; ++half) has_none[half] = mask.none[half] != 0;
    }
    if constexpr (kBias) add_bias<kKeys / 8>(bias, scores);
    return softmax.template advance<kKeys / 8>(scores, p.scale * kLog2E, exponent);
  }
  __device__ static void pack(const float (&scores)[kKeys / 2],
                              uint32_t (&weights)[kKeys / 16][4]) {
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) to_operand(scores, i, weights[i]);
  }

  __device__ void issue_first_scores(float (&scores)[kKeys / 2]) const {
    issue_scores(scores, at.stage());
    if (kPingPong) ping_pong_arrive();
  }
  // The first block of keys, whose scores have been issued: to its weights.
  __device__ void attend_first(const Work& work, float (&scores)[kKeys / 2],
                               uint32_t (&weights)[kKeys / 16][4]) {
    float exponent[2];
    float2 bias[kPairs];
    read_bias(work, work.begin(), bias);
    simt::wgmma_wait<0>();
    simt::wgmma_fence_registers(scores);
    release(barriers.keys_empty(at.stage()));
    softmax = {};
    has_none[0] = has_none[1] = false;
#pragma unroll
    for (float& sum : sums) sum = 0;
    advance(work, work.begin(), bias, scores, exponent);  // there is nothing to rescale yet
    softmax.template weigh<kKeys / 8>(0, scores);
    softmax.template weigh<kKeys / 8>(1, scores);
    softmax.template add<kKeys / 8>(0, scores);
    softmax.template add<kKeys / 8>(1, scores);
    pack(scores, weights);
    release_queries();
  }
  // The other blocks: to the last one's weights.
  __device__ void attend(const Work& work, float (&scores)[kKeys / 2],
                         uint32_t (&weights)[kKeys / 16][4]) {
    float exponent[2];
    float2 bias[kPairs];
    for (int n = work.begin() + 1; n < work.end(); ++n) {
      const Cursor<S::kStages> before = at;
      at.advance();
      simt::wgmma_fence_registers(sums);
      simt::mbarrier_wait(barriers.keys_full(at.stage()), at.parity());
      issue_scores(scores, at.stage());
      simt::mbarrier_wait(barriers.values_full(before.stage()), before.parity());
      read_bias(work, n, bias);
      issue_sums(weights, before.stage());
      if (kPingPong) ping_pong_arrive();
      simt::wgmma_wait<1>();
      simt::wgmma_fence_registers(scores);
      release(barriers.keys_empty(at.stage()));
      const bool rises = advance(work, n, bias, scores, exponent);
      softmax.template weigh<kKeys / 8>(0, scores);
      simt::wgmma_fence_registers(scores);
      // ptxas moves a wait to the beginning of its basic block: this branch is why nearly half of the exponentials
      // come before it, beside the product with the values; the others cover the packing. Warps of a warpgroup
      // branch apart, so no wgmma instruction may stand in it.
      float factors[2] = {1, 1};
      if (rises) {
        softmax.rescale_totals(exponent, factors);
        __syncwarp();  // so that it stays a branch
      }
      simt::wgmma_wait<0>();
      simt::wgmma_fence_registers(sums);
      if (rises) softmax.rescale(factors, sums);
      release(barriers.values_empty(before.stage()));
      softmax.template weigh<kKeys / 8>(1, scores);
      softmax.template add<kKeys / 8>(0, scores);
      softmax.template add<kKeys / 8>(1, scores);
      pack(scores, weights);
    }
  }

  // The other buffer held the results of the tile before until the copy engine had read them.
  __device__ void release_queries() {
    if (!is_storing) return;
    if (thread == 0) {
      simt::tma_store_wait_read<0>();
      simt::mbarrier_arrive(barriers.queries_empty(queries.stage() ^ 1));
    }
    is_storing = false;
  }

  // Results go out through the queries' own rows of their buffer.
  __device__ void store(const Work& work, int buffer) {
    softmax.finish();
    const int lane = thread % 32, row = thread / 32 * 16 + lane / 4;
    const auto out = tile(0, buffer) + 64 * group * kBoxColumns;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float share = softmax.share(half) * p.keep_scale;
#pragma unroll
      for (int j = 0; j < kDepth / 8; ++j) {
        const int r = row + 8 * half, chunk = j % 8;
        const int to = j / 8 * kRows * kBoxColumns + r * kBoxColumns + (chunk ^ (r & 7)) * 8;
        *reinterpret_cast<uint32_t*>(&out[to + 2 * (lane % 4)]) =
            simt::pack_bf16(sums[4 * j + 2 * half] * share, sums[4 * j + 2 * half + 1] * share);
      }
    }
    simt::fence_async_shared();
    simt::named_barrier_sync(2 + group, kGroup);
    if (thread == 0) {
#pragma unroll
      for (int box = 0; box < kDepth / kBoxColumns; ++box)
        if (box * kBoxColumns < p.depth && work.first + 64 * group < p.queries)
          simt::tma_store_4d(maps.out, &out[box * kRows * kBoxColumns], box * kBoxColumns,
                             work.head, work.first + 64 * group, work.b);
      simt::tma_store_commit();
    }
    is_storing = true;
    // Of the four lanes that share two rows, one for each.
    const int half = lane % 4, query = work.first + 64 * group + row + 8 * half;
    if (lse != nullptr && half < 2 && query < p.queries)
      lse[(static_cast<int64_t>(work.b) * p.heads + work.head) * p.queries + query] =
          (half == 0 ? has_none[0] : has_none[1]) ? kMaskedScore : softmax.log_sum(half);
  }

  const Problem& p;
  const Maps& maps;
  float* lse;
  const Barriers<kDepth> barriers;
  const BiasDiagonals head_diagonals;
  const int thread, group;
  Cursor<S::kStages> at;
  Cursor<2> queries;
  bool is_storing = false;
  bool has_none[2];  // of a thread's two queries, whether it has no key
  RunningSoftmax softmax;
  float sums[kDepth / 2];
};

#endif

template <int kDepth, bool kBias, bool kPingPong>
__global__ void __launch_bounds__(kThreads, 1)
    forward_kernel([[maybe_unused]] const __grid_constant__ Problem p,
                   [[maybe_unused]] const __grid_constant__ Maps maps,
                   [[maybe_unused]] float* lse) {
#if QT_SM90A
  const int tiles = (p.queries + kRows - 1) / kRows;
  const int64_t items = static_cast<int64_t>(tiles) * p.heads * p.batch;
  const int item = static_cast<int>(items * blockIdx.x / gridDim.x);
  const int end = static_cast<int>(items * (blockIdx.x + 1) / gridDim.x);
  if (threadIdx.x == 0) Barriers<kDepth>().init();
  __syncthreads();
  if (threadIdx.x < kGroup) {
    simt::register_dealloc<40>();
    if (threadIdx.x == 0) produce<kDepth>(p, maps, item, end, tiles);
  } else {
    simt::register_alloc<232>();
    Consumer<kDepth, kBias, kPingPong>(p, maps, lse).run(end - item);
  }
#endif
}

template <int kDepth, bool kBias, bool kPingPong>
void launch_forward(const Prepared& prepared, bf16* out, float* lse, Stream stream) {
  using S = Shape<kDepth>;
  const Problem& p = prepared.problem;
  const int64_t items = static_cast<int64_t>((p.queries + kRows - 1) / kRows) * p.heads * p.batch;
  const int64_t blocks = std::min<int64_t>(items, simt::device().multiprocessors);
  const Maps maps{map_of(p, prepared.q, p.queries, kRows), map_of(p, prepared.k, p.keys, kKeys),
                  map_of(p, prepared.v, p.keys, kKeys), map_of(p, out, p.queries, 64)};
  const int reach = p.table == nullptr ? 0 : p.reach;
  simt::launch(forward_kernel<kDepth, kBias, kPingPong>,
               simt::Launch{.grid = dim3(static_cast<unsigned>(blocks)),
                            .block = dim3(kThreads),
                            .shared = S::kDiagonalsAt + BiasDiagonals::bytes(reach, kRows, kKeys),
                            .stream = stream},
               p, maps, lse);
}

}  // namespace

void forward_wgmma(const Prepared& p, bf16* out, float* lse, Stream stream, bool ping_pong) {
  const bool has_bias = p.problem.table != nullptr;
  if (p.problem.depth > 64)
    (has_bias ? launch_forward<128, true, false> : launch_forward<128, false, false>)(p, out, lse,
                                                                                      stream);
  else if (ping_pong)
    (has_bias ? launch_forward<64, true, true> : launch_forward<64, false, true>)(p, out, lse,
                                                                                  stream);
  else
    (has_bias ? launch_forward<64, true, false> : launch_forward<64, false, false>)(p, out, lse,
                                                                                    stream);
}

}  // namespace quintet::QT_GPU::attention
