// Gradients for sm_90a. One warp copies tiles (TMA), three make the statistics of their rows, two warpgroups
// multiply (wgmma) for 64 keys each. Blocks are persistent. Scores are computed transposed (rows are keys): weights and their gradients are, from
// registers, operands of the products for dv and dk; through shared memory they reach the product
// for dq. Diagonals of the gradients are summed while the products run.

#include "kernels/attention/gpu/backward.cuh"
#include "kernels/attention/gpu/statistics.cuh"
#include "kernels/attention/gpu/wgmma_tiles.cuh"

namespace quintet::QT_GPU::attention {
namespace {

constexpr int kKeys = 128, kThreads = 3 * kGroup, kStages = 2;
constexpr int kWarps = 8;  // that multiply
constexpr int kStatisticsThreads = 3 * 32;
// That the producer has announced to them: when it announces one, the tile three before has been multiplied, so
// that all have read its step.
constexpr int kSteps = 4;

// Offsets in shared memory. Of dq a warpgroup computes 64 queries or, of 128 columns, 64.
template <int kDepth>
struct Shape {
  static constexpr int kQueries = kDepth == 64 ? 128 : 64;
  static constexpr int kKeyStages = kDepth == 64 ? 2 : 1;
  static constexpr int kKeyTile = kKeys * kDepth, kQueryTile = kQueries * kDepth;  // elements
  static constexpr int kScoreTile = kKeys * kQueries;
  static constexpr size_t kKeyBytes = sizeof(bf16) * kKeyTile;
  static constexpr size_t kQueryBytes = sizeof(bf16) * kQueryTile;
  static constexpr size_t kScoreBytes = sizeof(bf16) * kScoreTile;
  static constexpr size_t kStatisticsBytes = sizeof(float) * kQueries;  // of lse or delta
  static constexpr size_t kQueriesAt = 2 * kKeyStages * kKeyBytes;      // after k, v
  static constexpr size_t kScoresAt = kQueriesAt + 2 * kStages * kQueryBytes;
  static constexpr size_t kStatisticsAt = kScoresAt + 2 * kScoreBytes;
  static constexpr size_t kBarriersAt = kStatisticsAt + 2 * kStages * kStatisticsBytes;
  static constexpr int kBarriers = 12 + kSteps;
  static constexpr size_t kWorkAt = kBarriersAt + 8 * kBarriers;
  static constexpr size_t kStepBytes = 56;
  static constexpr size_t kStepsAt = kWorkAt + 2 * 40;
  static constexpr size_t kDiagonalsAt = kStepsAt + kStepBytes * kSteps;
  // A statistics thread has so many rows of a tile: of every eighth of the groups of rows that the statistics
  // warps read together.
  static constexpr int kRowsAtOnce = kStatisticsThreads / kRowLanes;
  static constexpr int kGroups = (kQueries + kRowsAtOnce - 1) / kRowsAtOnce;
  static constexpr int kStatisticsRows = (kGroups + kRowLanes - 1) / kRowLanes;
};
constexpr int kSums = 32;  // of dq, a thread

struct Maps {
  simt::TensorMap q, k, v, dout;
};

struct Operands {
  const bf16 *out, *dout;
  const float* lse;     // [b, h, q]
  float2* statistics;   // of the block's item: [block, query tile, kStatisticsRows, thread]
  const uint8_t* keep;  // null: no dropout
};

// Of the sums of dq in GradientResults: `row` is that of a part of a head of a sequence, with one part of a block.
__device__ int64_t sums_at(const Problem& p, int queries, int64_t row, int tile, int thread) {
  const int tiles = (p.queries + queries - 1) / queries;
  return (row * tiles + tile) * (kSums / 4 * 2 * kGroup) + thread;
}

// A row of results: where it goes (null: nowhere), and whether it is 0.
struct ResultRow {
  bf16* to;
  bool is_zero;
};

// A warp's fragments, multiplied with `factor`, to 16 rows: row_of(r) is where row r of them goes, of which there are
// `columns`. Four lanes that share a row exchange words, so that each stores 16 bytes.
template <int kFragments, typename RowOf>
__device__ void store_rows(const float (&s)[4 * kFragments], float factor, int columns, int lane,
                           const RowOf& row_of) {
  const int c = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const ResultRow row = row_of(lane / 4 + 8 * half);
#pragma unroll
    for (int j = 0; j < kFragments; j += 4) {
      uint32_t words[4];  // of fragments j, ..., j + 3: columns 2c, 2c + 1
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* two = &s[4 * (j + i) + 2 * half];
        words[i] = row.is_zero ? 0U : simt::pack_bf16(factor * two[0], factor * two[1]);
      }
#pragma unroll
      for (int i = 0; i < 4; i += 2) {  // lanes c and c ^ 1
        const uint32_t got = __shfl_xor_sync(0xffffffffU, c % 2 == 0 ? words[i + 1] : words[i], 1);
        (c % 2 == 0 ? words[i + 1] : words[i]) = got;
      }
      const bool is_low = c < 2;
      const uint32_t got[2] = {__shfl_xor_sync(0xffffffffU, is_low ? words[2] : words[0], 2),
                               __shfl_xor_sync(0xffffffffU, is_low ? words[3] : words[1], 2)};
      if (row.to != nullptr && 8 * (j + c) < columns)
        *reinterpret_cast<uint4*>(row.to + 8 * (j + c)) =
            is_low ? make_uint4(words[0], words[1], got[0], got[1])
                   : make_uint4(got[0], got[1], words[2], words[3]);
    }
  }
}

// What thread `thread` of the 256 has of dq, to global memory.
template <int kDepth>
__device__ void store_dq(const Problem& p, int b, int head, int first, int thread,
                         const float (&sums)[kSums], bf16* dq) {
  const int warp = thread / 32, group = warp / 4;
  const int column = kDepth == 64 ? 0 : 64 * group;
  const int row = (kDepth == 64 ? 64 * group : 0) + warp % 4 * 16;
  store_rows<8>(sums, p.scale, p.depth - column, thread % 32, [&](int r) {
    const int query = first + row + r;
    return ResultRow{
        query < p.queries ? dq + p.offset(p.queries, b, query, head) + column : nullptr, false};
  });
}

__device__ inline void add_saved(const float4* saved, float (&sums)[kSums]) {
#pragma unroll
  for (int i = 0; i < kSums / 4; ++i) {
    const float4 x = saved[i * 2 * kGroup];
    sums[4 * i] += x.x;
    sums[4 * i + 1] += x.y;
    sums[4 * i + 2] += x.z;
    sums[4 * i + 3] += x.w;
  }
}

#if QT_SM90A

struct Barriers {
  simt::Shared<uint64_t> all;
  template <typename S>
  __device__ explicit Barriers(S) : all(simt::shared<uint64_t>(S::kBarriersAt, S::kBarriers)) {}
  __device__ uint64_t* keys_full(int stage) const { return &all[stage]; }
  __device__ uint64_t* keys_empty(int stage) const { return &all[2 + stage]; }
  __device__ uint64_t* queries_full(int stage) const { return &all[4 + stage]; }
  __device__ uint64_t* douts_full(int stage) const { return &all[6 + stage]; }
  __device__ uint64_t* queries_empty(int stage) const { return &all[8 + stage]; }  // douts too
  __device__ uint64_t* scores_full(int buffer) const { return &all[10 + buffer]; }
  __device__ uint64_t* step_announced(int stage) const { return &all[12 + stage]; }
  __device__ void init() const {
    for (int i = 0; i < 2; ++i) {
      simt::mbarrier_init(keys_full(i), 1);
      simt::mbarrier_init(keys_empty(i), 8);  // a thread of each consuming warp
      simt::mbarrier_init(queries_full(i), 1);
      simt::mbarrier_init(douts_full(i), 1 + kStatisticsThreads / 32);  // of each warp a thread
      simt::mbarrier_init(queries_empty(i), 8);
      simt::mbarrier_init(scores_full(i), 8);
    }
    for (int i = 0; i < kSteps; ++i) simt::mbarrier_init(step_announced(i), 1);
    simt::fence_barrier_init();
  }
};

// A part of a head of a sequence: its blocks of keys, the tiles of queries that need a block. In shared
// memory, as no thread has registers for it where scores and gradients are held. Heads change
// slowest, so that a block rarely needs other diagonals.
template <int kDepth>
struct Work {
  static constexpr int kQueries = Shape<kDepth>::kQueries;
  int number, end;  // of the parts of all heads, and where those of this block end
  int part, item, head, b, tiles, sums;
  Part blocks;
  __device__ Work(const Problem& p, int parts, int its_number, int its_end)
      : number(its_number),
        end(its_end),
        part(number % parts),
        head(number / parts / p.batch),
        b(number / parts % p.batch),
        tiles((opaque(p.queries) + kQueries - 1) / kQueries),
        blocks(part_of((opaque(p.keys) + kKeys - 1) / kKeys, parts, part)) {
    item = b * p.heads + head;
    sums = parts == 1 ? static_cast<int>(blockIdx.x) : item * parts + part;
  }
  /// Of this part, the blocks that a tile has to do with.
  __device__ Part seen(const Problem& p, int tile) const {
    return visits(tile_keys(p, b, tile * kQueries, kQueries), kKeys, blocks);
  }
  /// The first tile from `tile` on that has to do with `block`; `tiles` if none has.
  __device__ int next_tile(const Problem& p, int block, int tile) const {
#pragma unroll 1
    for (; tile < tiles; ++tile) {
      const Part those = seen(p, tile);
      if (block >= those.begin && block < those.end) break;
    }
    return tile;
  }
};

// A tile that the statistics warps work on, and rows that they will need: where they begin in out and dout,
// and how many there are.
struct Step {
  int64_t at, next_at;
  int64_t lse, range,
      saved;  // of the tile's first row: in lse, Problem::row_ranges, Operands::statistics
  int rows, next_rows;     // rows: 0: there are no more steps
  bool is_first, is_last;  // of this part's blocks of keys
};
template <int kDepth>
__device__ Step& announced_step(uint32_t count) {
  static_assert(sizeof(Step) <= Shape<kDepth>::kStepBytes);
  return simt::shared<Step>(Shape<kDepth>::kStepsAt, kSteps)[Cursor<kSteps>{count}.stage()];
}
// Step `count`. Field by field, as there are no registers for all.
template <int kDepth>
__device__ void announce(const Problem& p, int parts, const Work<kDepth>& work, int block, int tile,
                         uint32_t count) {
  using S = Shape<kDepth>;
  const int first = tile * S::kQueries;
  Step& step = announced_step<kDepth>(count);
  const Part seen = work.seen(p, tile);
  step.is_first = block == seen.begin;
  step.is_last = block + 1 == seen.end;
  step.at = p.offset(p.queries, work.b, first, work.head);
  step.lse = static_cast<int64_t>(work.item) * p.queries + first;
  step.range = p.row_at(work.b, first);
  step.saved = static_cast<int64_t>(blockIdx.x) * work.tiles + tile;
  step.rows = min(p.queries - first, S::kQueries);
  if (tile + 1 < work.tiles) {
    step.next_at = p.offset(p.queries, work.b, first + S::kQueries, work.head);
    step.next_rows = min(p.queries - first - S::kQueries, S::kQueries);
  } else {  // of the next head
    const int next = (work.number + 1) / parts;
    step.next_at = p.offset(p.queries, next % p.batch, 0, next / p.batch);
    step.next_rows = work.number + 1 == work.end ? 0 : min(p.queries, S::kQueries);
  }
  simt::mbarrier_arrive(Barriers{S{}}.step_announced(Cursor<kSteps>{count}.stage()));
}

template <int kDepth>
__device__ void produce(const Problem& p, const Maps& maps, int parts, const Work<kDepth>& work,
                        Cursor<Shape<kDepth>::kKeyStages>& keys, Cursor<kStages>& queries) {
  using S = Shape<kDepth>;
  const Barriers barriers{S{}};
  for (int block = work.blocks.begin; block < work.blocks.end; ++block, keys.advance()) {
    simt::mbarrier_wait(barriers.keys_empty(keys.stage()), keys.parity() ^ 1U);
    uint64_t* full = barriers.keys_full(keys.stage());
    simt::mbarrier_arrive_expect_tx(full, 2 * S::kKeyBytes);
    const size_t to = 2 * keys.stage() * S::kKeyBytes;
    load_tile<kKeys, kDepth>(simt::shared<bf16>(to, S::kKeyTile), maps.k, full, work.head,
                             block * kKeys, work.b);
    load_tile<kKeys, kDepth>(simt::shared<bf16>(to + S::kKeyBytes, S::kKeyTile), maps.v, full,
                             work.head, block * kKeys, work.b);
    for (int tile = work.next_tile(p, block, 0); tile < work.tiles;
         tile = work.next_tile(p, block, tile + 1), queries.advance()) {
      const int first = tile * S::kQueries;
      const size_t at = S::kQueriesAt + 2 * queries.stage() * S::kQueryBytes;
      announce(p, parts, work, block, tile, queries.count);
      simt::mbarrier_wait(barriers.queries_empty(queries.stage()), queries.parity() ^ 1U);
      full = barriers.queries_full(queries.stage());
      simt::mbarrier_arrive_expect_tx(full, S::kQueryBytes);
      load_tile<S::kQueries, kDepth>(simt::shared<bf16>(at, S::kQueryTile), maps.q, full, work.head,
                                     first, work.b);
      full = barriers.douts_full(queries.stage());
      simt::mbarrier_arrive_expect_tx(full, S::kQueryBytes);
      load_tile<S::kQueries, kDepth>(simt::shared<bf16>(at + S::kQueryBytes, S::kQueryTile),
                                     maps.dout, full, work.head, first, work.b);
    }
  }
}

// What a statistics thread does: lse and delta of each tile, next to where the producer puts it. A tile's first block
// of keys computes them; for those after it the thread reads back from global memory what it wrote itself.
template <int kDepth>
class RowStatistics {
  using S = Shape<kDepth>;
  using Rows = float2[S::kStatisticsRows];  // lse and delta of the thread's rows

 public:
  __device__ RowStatistics(const Problem& problem, const Operands& operands)
      : p(problem), in(operands) {}

  __device__ void run() const {
    const Barriers barriers{S{}};
    for (uint32_t count = 0;; ++count) {
      const Cursor<kSteps> steps{static_cast<uint32_t>(opaque(static_cast<int>(count)))};
      simt::mbarrier_wait(barriers.step_announced(steps.stage()), steps.parity());
      const Step& step = announced_step<kDepth>(steps.count);
      if (step.rows == 0) return;
      Rows rows;
      get(step, rows);
      const Cursor<kStages> queries{static_cast<uint32_t>(opaque(static_cast<int>(count)))};
      simt::mbarrier_wait(barriers.queries_empty(queries.stage()), queries.parity() ^ 1U);
      store(queries.stage(), rows);
      __syncwarp();
      if (threadIdx.x % 32 == 0) simt::mbarrier_arrive(barriers.douts_full(queries.stage()));
    }
  }

 private:
  // Of the statistics threads.
  __device__ static int thread() { return opaque(static_cast<int>(threadIdx.x) - 32); }
  // In a tile, row i of thread t.
  __device__ static int row_of(int i, int t) {
    return (kRowLanes * i + t % kRowLanes) * S::kRowsAtOnce + t / kRowLanes;
  }
  __device__ float2& saved(const Step& step, int i) const {
    return in.statistics[(step.saved * S::kStatisticsRows + i) * kStatisticsThreads + thread()];
  }
  __device__ void get(const Step& step, Rows& rows) const {
    if (!step.is_first) {
#pragma unroll
      for (int i = 0; i < S::kStatisticsRows; ++i) rows[i] = saved(step, i);
      return;
    }
    prefetch(step);
    compute(step, rows);
    if (step.is_last) return;
#pragma unroll
    for (int i = 0; i < S::kStatisticsRows; ++i) saved(step, i) = rows[i];
  }
  // The next rows arrive in the second-level cache while these are worked on.
  __device__ void prefetch(const Step& step) const {
    constexpr int kColumns = 32, kPieces = kDepth / kColumns;
#pragma unroll 1
    for (int i = thread(); i < step.next_rows * kPieces; i += kStatisticsThreads) {
      const int column = i % kPieces * kColumns;
      if (column >= p.depth) continue;
      const int64_t at = static_cast<int64_t>(i / kPieces) * (p.heads * p.depth) + column;
      simt::prefetch_l2(in.out + step.next_at + at);
      simt::prefetch_l2(in.dout + step.next_at + at);
    }
  }
  __device__ void compute(const Step& step, Rows& rows) const {
    constexpr int kChunks = kDepth / (8 * kRowLanes);
    const int t = thread(), lane = t % kRowLanes, stride = p.heads * p.depth;
    int64_t at = step.at + static_cast<int64_t>(t / kRowLanes) * stride + 8 * lane;
#pragma unroll
    for (float2& both : rows) both.y = 0;
#pragma unroll 1
    for (int row = t / kRowLanes; row < S::kQueries;
         row += S::kRowsAtOnce, at += S::kRowsAtOnce * stride) {
      uint4 x[kChunks] = {}, y[kChunks] = {};
#pragma unroll
      for (int i = 0; i < kChunks; ++i)
        if (row < step.rows && 8 * (lane + kRowLanes * i) < p.depth) {
          x[i] = reinterpret_cast<const uint4*>(in.out + at)[kRowLanes * i];
          y[i] = reinterpret_cast<const uint4*>(in.dout + at)[kRowLanes * i];
        }
      float delta = 0;
#pragma unroll
      for (int i = 0; i < kChunks; ++i) delta = add_products(x[i], y[i], delta);
      delta = sum_of_row(delta);
#pragma unroll
      for (int i = 0; i < S::kStatisticsRows; ++i)
        if (row == row_of(i, t)) rows[i].y = delta;
    }
#pragma unroll
    for (int i = 0; i < S::kStatisticsRows; ++i) {
      const int row = row_of(i, thread());
      rows[i].x = row < step.rows ? log_sum_of(p, in.lse + step.lse + row, step.range + row, kLog2E)
                                  : kVanish;
    }
  }
  __device__ static void store(int stage, const Rows& rows) {
    const int t = thread();
    const size_t at = S::kStatisticsAt + 2 * stage * S::kStatisticsBytes;
    const auto lse = simt::shared<float>(at, S::kQueries);
    const auto delta = simt::shared<float>(at + S::kStatisticsBytes, S::kQueries);
#pragma unroll
    for (int i = 0; i < S::kStatisticsRows; ++i) {
      const int row = row_of(i, t);
      if (row >= S::kQueries) continue;
      lse[row] = rows[i].x;
      delta[row] = rows[i].y;
    }
  }

  const Problem& p;
  const Operands& in;
};

// One warpgroup's part: keys [64 group, 64 group + 64) of each block.
template <int kDepth, bool kBias>
class Consumer {
  using S = Shape<kDepth>;
  static constexpr int kQueries = S::kQueries;

 public:
  __device__ Consumer(const Problem& problem, const Operands& operands,
                      const GradientResults& results, Work<kDepth>& its_work, int its_parts,
                      const DiagonalStrips& its_strips)
      : p(problem),
        in(operands),
        to(results),
        work(its_work),
        parts(its_parts),
        head_diagonals(kBias ? problem.reach : 0, kKeys, kQueries, S::kDiagonalsAt),
        strips(its_strips),
        thread(static_cast<int>(threadIdx.x) - kGroup) {}

  __device__ void run() {
    const bool sums_diagonals = kBias && to.dbias_diagonals != nullptr;
    for (bool is_new_head = true;;) {
      if (kBias && is_new_head) {
        head_diagonals.load(p, work.head, -1, S::kDiagonalsAt, thread, 2 * kGroup);
        simt::named_barrier_sync(1, 2 * kGroup);
      }
      for_keys();
      if (sums_diagonals) {
        __syncwarp();
        strips.finish(thread / 32, thread % 32);
        simt::named_barrier_sync(1, 2 * kGroup);
        const int64_t row = static_cast<int64_t>(work.item) * parts + work.part;
        strips.store(to.dbias_diagonals + row * (2 * p.reach + 1), thread, 2 * kGroup);
      }
      if (work.number + 1 == work.end) return;
      const int last_head = work.head;
      simt::named_barrier_sync(1, 2 * kGroup);  // the last one's work has been read
      if (thread == 0) work = Work<kDepth>(p, parts, work.number + 1, work.end);
      simt::named_barrier_sync(1, 2 * kGroup);
      is_new_head = work.head != last_head;
    }
  }

 private:
  __device__ void for_keys() {
    for (int block = work.blocks.begin; block < work.blocks.end; ++block, keys.advance()) {
#pragma unroll
      for (int i = 0; i < kDepth / 2; ++i) dk[i] = dv[i] = 0;
      simt::mbarrier_wait(barriers.keys_full(keys.stage()), keys.parity());
      int before = kNoTile;
      for (int tile = work.next_tile(p, block, 0); tile < work.tiles;
           tile = work.next_tile(p, block, tile + 1), queries.advance())
        before = differentiate(block, tile, before);
      if (kLater && before != kNoTile) {
        float dq[kSums] = {};
        load_sums(before, dq);
        begin_dq(queries.stage() ^ 1, dq);
        simt::wgmma_wait<0>();
        store_sums(before, dq);
      }
      release(barriers.keys_empty(keys.stage()));
      const int first = block * kKeys + thread / 32 * 16;
      store_keys(first, dk, p.scale, nullptr, to.dk);
      store_keys(first, dv, p.keep_scale, in.keep, to.dv);
    }
  }

  __device__ static void release(uint64_t* bar) {
    __syncwarp();  // all lanes have read, and have seen that it was full
    if (threadIdx.x % 32 == 0) simt::mbarrier_arrive(bar);
  }
  // Issues sums = rows of this group of x times the rows of y; sums += ... if kAdd.
  template <bool kAdd>
  __device__ void issue_products(simt::Shared<bf16> x, simt::Shared<bf16> y,
                                 float (&sums)[kQueries / 2]) const {
#pragma unroll
    for (int i = 0; i < kDepth / 16; ++i)
      simt::wgmma<kQueries>(sums, terms_in_columns<kKeys>(x, 64 * (thread / kGroup), i),
                            terms_in_columns<kQueries>(y, 0, i), i > 0 || kAdd);
    simt::wgmma_commit();
  }
  // Issues sums += w x, x a tile of queries.
  __device__ static void issue_sums(const uint32_t (&w)[kQueries / 16][4], simt::Shared<bf16> x,
                                    float (&sums)[kDepth / 2]) {
#pragma unroll
    for (int i = 0; i < kQueries / 16; ++i)
      simt::wgmma<kDepth, true>(sums, w[i], terms_in_rows<kQueries>(x, i), true);
    simt::wgmma_commit();
  }
  // Issues dq += gradients of scores times keys.
  __device__ void issue_dq(simt::Shared<bf16> dscores, simt::Shared<bf16> k,
                           float (&dq)[kSums]) const {
    const int group = thread / kGroup;
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i)
      simt::wgmma<64, true, true>(dq, terms_in_rows<kKeys>(dscores, i, kDepth == 64 ? group : 0),
                                  terms_in_rows<kKeys>(k, i, kDepth == 64 ? 0 : group), true);
    simt::wgmma_commit();
  }
  __device__ static void pack(const float (&x)[kQueries / 2],
                              uint32_t (&packed)[kQueries / 16][4]) {
#pragma unroll
    for (int i = 0; i < kQueries / 16; ++i) to_operand(x, i, packed[i]);
  }

  // A tile's dq is computed with the tile or, in heads of 128, beside the next one's scores: the groups wait
  // for each other's gradients of scores a tile later. Heads of 64 lose by it.
  static constexpr bool kLater = kDepth == 128;
  // A tile whose dq is still to come: 4 times its number, and whether this is its first, its last block of keys.
  static constexpr int kNoTile = -1, kFirst = 1, kLast = 2;
  __device__ simt::Shared<bf16> key_tile(bool is_value) const {
    return simt::shared<bf16>((2 * keys.stage() + (is_value ? 1 : 0)) * S::kKeyBytes, S::kKeyTile);
  }
  __device__ simt::Shared<bf16> score_tile(int buffer) const {
    return simt::shared<bf16>(S::kScoresAt + buffer * S::kScoreBytes, S::kScoreTile);
  }
  __device__ float4* sums_of(int left) const {
    return to.dq_sums + sums_at(p, kQueries, work.sums, left / 4, thread);
  }
  // dq as the blocks of keys before left it; for the first block it stays as it is, zeros.
  __device__ void load_sums(int left, float (&dq)[kSums]) const {
    if ((left & kFirst) != 0) return;
    const float4* saved = sums_of(left);
#pragma unroll
    for (int i = 0; i < kSums / 4; ++i) {
      const float4 x = saved[i * 2 * kGroup];
      dq[4 * i] = x.x;
      dq[4 * i + 1] = x.y;
      dq[4 * i + 2] = x.z;
      dq[4 * i + 3] = x.w;
    }
  }
  // Issues dq += ... of the tile whose gradients of scores are in `buffer`, when both groups' are.
  __device__ void begin_dq(int buffer, float (&dq)[kSums]) const {
    if (kLater)
      simt::mbarrier_wait(barriers.scores_full(buffer), queries.parity() ^ (buffer == 1 ? 1U : 0U));
    else
      simt::named_barrier_sync(1, 2 * kGroup);
    simt::wgmma_fence_registers(dq);
    simt::wgmma_fence();
    issue_dq(score_tile(buffer), key_tile(false), dq);
  }
  // After the product.
  __device__ void store_sums(int left, float (&dq)[kSums]) const {
    simt::wgmma_fence_registers(dq);
    if ((left & kLast) != 0)
      return store_dq<kDepth>(p, work.b, work.head, left / 4 * kQueries, thread, dq, to.dq);
    float4* saved = sums_of(left);
#pragma unroll
    for (int i = 0; i < kSums / 4; ++i)
      saved[i * 2 * kGroup] = make_float4(dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
  }

  // Returns the tile with what is left of it; `before`: what is left of the one before.
  __device__ int differentiate(int block, int tile, int before) {
    simt::forget(thread);
    // Bits, not divisions: those of a signed number take more instructions.
    const int lane = thread & 31, row = (thread >> 5) * 16 + lane / 4, c = lane % 4;
    const int first = tile * kQueries, key0 = block * kKeys;
    const size_t at = S::kQueriesAt + 2 * queries.stage() * S::kQueryBytes;
    const size_t statistics = S::kStatisticsAt + 2 * queries.stage() * S::kStatisticsBytes;
    const auto q = simt::shared<bf16>(at, S::kQueryTile);
    const auto dout = simt::shared<bf16>(at + S::kQueryBytes, S::kQueryTile);
    const auto k = key_tile(false), v = key_tile(true);
    const TileKeys range = tile_keys(p, work.b, first, kQueries);
    const Part seen = visits(range, kKeys, work.blocks);
    const bool is_masked = key0 < range.inner_begin || key0 + kKeys > range.inner_end;
    const int left = 4 * tile + (block == seen.begin ? kFirst : 0) +
                     (block == seen.end - 1 && parts == 1 ? kLast : 0);
    MaskBits mask{};
    if (is_masked) mask = mask_transposed<kQueries / 8>(p, work.b, first, key0, row, lane);
    float scores[kQueries / 2], dweights[kQueries / 2], dq[kSums] = {};
    uint32_t weights[kQueries / 16][4], dscores[kQueries / 16][4];
    const bool is_waiting = kLater && before != kNoTile;
    if (is_waiting) load_sums(before, dq);
    if constexpr (kBias)
      head_diagonals.template fill<kQueries / 8>(
          scores, head_diagonals.entry(first - key0 - p.first_relative) + 2 * c - row);
    simt::mbarrier_wait(barriers.queries_full(queries.stage()), queries.parity());
    simt::wgmma_fence_registers(scores);
    simt::wgmma_fence();
    if (is_waiting) {
      begin_dq(queries.stage() ^ 1, dq);
      issue_products<kBias>(k, q, scores);
      simt::wgmma_wait<1>();
      store_sums(before, dq);
    } else {
      issue_products<kBias>(k, q, scores);
    }
    simt::mbarrier_wait(barriers.douts_full(queries.stage()), queries.parity());
    if (kLater) simt::wgmma_fence();
    issue_products<false>(v, dout, dweights);
    simt::wgmma_wait<1>();
    simt::wgmma_fence_registers(scores);
    if (is_masked) apply_mask<kQueries / 8>(mask, scores);
    weights_transposed<kQueries / 8>(scores, p.scale * kLog2E,
                                     simt::shared<float2>(statistics, kQueries / 2), c);
    // Weights take half the registers from here on: without that the kernel of heads of 64 with a
    // bias spills.
    pack(scores, weights);
#pragma unroll
    for (auto& operand : weights) simt::wgmma_fence_registers(operand);
    // The product for dv runs beside the gradients of scores.
    simt::wgmma_fence_registers(dv);
    simt::wgmma_fence();
    issue_sums(weights, dout, dv);
    simt::wgmma_wait<1>();
    simt::wgmma_fence_registers(dweights);
    differentiate_transposed<kQueries / 8>(
        [&](int j, int half) { return simt::unpack<bf16>(weights[j / 2][2 * (j % 2) + half]); },
        dweights, simt::shared<float2>(statistics + S::kStatisticsBytes, kQueries / 2),
        p.keep_scale, c);
    pack(dweights, dscores);
    simt::forget(thread);
    const int stored_row = (thread >> 5) * 16 + (thread & 15);
    const auto shared_scores = score_tile(queries.stage());
#pragma unroll
    for (int i = 0; i < kQueries / 16; ++i) {
      const int chunk = (2 * i % 8 + (thread & 31) / 16) ^ (stored_row & 7);
      simt::stmatrix_x4(&shared_scores[(i / 4 * kKeys + stored_row) * kBoxColumns + chunk * 8],
                        dscores[i]);
    }
    simt::fence_async_shared();
    simt::wgmma_fence_registers(dk);
    simt::wgmma_fence();
    issue_sums(dscores, q, dk);
    if (kLater) release(barriers.scores_full(queries.stage()));
    if (kBias && to.dbias_diagonals != nullptr)
      strips.template add<kQueries / 8>(first - key0 - p.first_relative - (thread >> 5) * 16,
                                        thread >> 5, thread & 31, dweights);
    // Earlier blocks' sums arrive while the product runs.
    float saved[kSums] = {};
    if (!kLater) {
      begin_dq(queries.stage(), dq);
      load_sums(left, saved);
    }
    simt::wgmma_wait<0>();
    simt::wgmma_fence_registers(dv);
    simt::wgmma_fence_registers(dk);
    release(barriers.queries_empty(queries.stage()));
    if (kLater) return left;
    simt::wgmma_fence_registers(dq);
#pragma unroll
    for (int i = 0; i < kSums; ++i) dq[i] += saved[i];
    store_sums(left, dq);
    return left;
  }

  // dk or dv of a warp's 16 keys, multiplied with `factor`; rows that `keep` drops become 0.
  __device__ void store_keys(int first, const float (&sums)[kDepth / 2], float factor,
                             const uint8_t* keep, bf16* result) const {
    store_rows<kDepth / 8>(sums, factor, p.depth, thread % 32, [&](int r) {
      const int key = first + r;
      if (key >= p.keys) return ResultRow{nullptr, true};
      return ResultRow{
          result + p.offset(p.keys, work.b, key, work.head),
          keep != nullptr && keep[static_cast<int64_t>(work.item) * p.keys + key] == 0};
    });
  }

  const Problem& p;
  const Operands& in;
  const GradientResults& to;
  Work<kDepth>& work;
  const int parts;
  const Barriers barriers{S{}};
  const BiasDiagonals head_diagonals;
  const DiagonalStrips strips;
  int thread;  // of the two consuming warpgroups
  Cursor<S::kKeyStages> keys;
  Cursor<kStages> queries;  // of their gradients of scores too
  float dk[kDepth / 2], dv[kDepth / 2];
};

#endif

template <int kDepth, bool kBias>
__global__ void __launch_bounds__(kThreads, 1)
    backward_kernel([[maybe_unused]] const __grid_constant__ Problem p,
                    [[maybe_unused]] const __grid_constant__ Maps maps,
                    [[maybe_unused]] const __grid_constant__ Operands in,
                    [[maybe_unused]] const __grid_constant__ GradientResults to,
                    [[maybe_unused]] int parts) {
#if QT_SM90A
  using S = Shape<kDepth>;
  const int reach = kBias ? p.reach : 0;
  const BiasDiagonals head_diagonals(reach, kKeys, S::kQueries, S::kDiagonalsAt);
  const DiagonalStrips strips(reach, kWarps,
                              S::kDiagonalsAt + BiasDiagonals::bytes(reach, kKeys, S::kQueries));
  static_assert(S::kWorkAt + 2 * sizeof(Work<kDepth>) <= S::kStepsAt);
  const auto works = simt::shared<Work<kDepth>>(S::kWorkAt, 2);  // of who copies, of who multiplies
  const int64_t count = static_cast<int64_t>(p.batch) * p.heads * parts;
  int number = static_cast<int>(count * blockIdx.x / gridDim.x);
  const int end = static_cast<int>(count * (blockIdx.x + 1) / gridDim.x);
  if (threadIdx.x == 0) Barriers{S{}}.init();
  if (threadIdx.x < 2) works[threadIdx.x] = Work<kDepth>(p, parts, number, end);
  if (kBias && to.dbias_diagonals != nullptr) strips.clear();
  __syncthreads();
  if (threadIdx.x < kGroup) {
    simt::register_dealloc<40>();
    if (threadIdx.x >= 32) return RowStatistics<kDepth>(p, in).run();
    if (threadIdx.x != 0) return;
    Cursor<S::kKeyStages> keys;
    Cursor<kStages> queries;
    for (Work<kDepth>& work = works[0]; work.number < work.end;
         work = Work<kDepth>(p, parts, work.number + 1, work.end))
      produce<kDepth>(p, maps, parts, work, keys, queries);
    announced_step<kDepth>(queries.count).rows = 0;
    simt::mbarrier_arrive(Barriers{S{}}.step_announced(Cursor<kSteps>{queries.count}.stage()));
  } else {
    simt::register_alloc<232>();
    Consumer<kDepth, kBias>(p, in, to, works[1], parts, strips).run();
  }
#endif
}

// dq of the parts that have to do with it, added in order. A block a tile of queries of a head.
template <int kDepth>
__global__ void __launch_bounds__(2 * kGroup)
    add_parts_kernel(const __grid_constant__ Problem p, GradientResults to, int parts) {
  constexpr int kQueries = Shape<kDepth>::kQueries;
  const int tiles = (p.queries + kQueries - 1) / kQueries;
  const int tile = static_cast<int>(blockIdx.x) % tiles;
  const int item = static_cast<int>(blockIdx.x) / tiles, head = item % p.heads;
  const int b = item / p.heads, thread = static_cast<int>(threadIdx.x);
  const TileKeys keys = tile_keys(p, b, tile * kQueries, kQueries);
  float sums[kSums] = {};
  for (int part = 0; part < parts; ++part) {
    const Part seen = visits(keys, kKeys, part_of((p.keys + kKeys - 1) / kKeys, parts, part));
    if (seen.begin < seen.end)
      add_saved(to.dq_sums + sums_at(p, kQueries, item * parts + part, tile, thread), sums);
  }
  store_dq<kDepth>(p, b, head, tile * kQueries, thread, sums, to.dq);
}

template <int kDepth, bool kBias>
void launch_backward(const Prepared& prepared, Operands in, GradientResults to, float* dtable,
                     Stream stream) {
  using S = Shape<kDepth>;
  const Problem& p = prepared.problem;
  const int64_t items = static_cast<int64_t>(p.batch) * p.heads;
  const int64_t tiles = (p.queries + S::kQueries - 1) / S::kQueries;
  const int parts = best_parts(items, (p.keys + kKeys - 1) / kKeys, simt::device().multiprocessors);
  const int64_t blocks = std::min<int64_t>(items * parts, simt::device().multiprocessors);
  to.dq_sums = prepared.scratch<float4>((parts == 1 ? blocks : items * parts) * tiles *
                                        (kSums / 4 * 2 * kGroup));
  in.statistics =
      prepared.scratch<float2>(blocks * tiles * S::kStatisticsRows * kStatisticsThreads);
  if (dtable != nullptr)
    to.dbias_diagonals = prepared.scratch<float>(items * parts * prepared.diagonals_length());
  const Maps maps{map_of(p, prepared.q, p.queries, S::kQueries),
                  map_of(p, prepared.k, p.keys, kKeys), map_of(p, prepared.v, p.keys, kKeys),
                  map_of(p, in.dout, p.queries, S::kQueries)};
  const int reach = kBias ? p.reach : 0;
  simt::launch(
      backward_kernel<kDepth, kBias>,
      simt::Launch{.grid = dim3(static_cast<unsigned>(blocks)),
                   .block = dim3(kThreads),
                   .shared = S::kDiagonalsAt + BiasDiagonals::bytes(reach, kKeys, S::kQueries) +
                             DiagonalStrips::bytes(reach, kWarps),
                   .stream = stream},
      p, maps, in, to, parts);
  if (parts > 1)
    simt::launch(add_parts_kernel<kDepth>,
                 simt::Launch{.grid = dim3(static_cast<unsigned>(items * tiles)),
                              .block = dim3(2 * kGroup),
                              .stream = stream},
                 p, to, parts);
  if (dtable != nullptr) reduce_bias_diagonals(prepared, to.dbias_diagonals, parts, dtable, stream);
}

}  // namespace

void backward_wgmma(const Prepared& p, const bf16* out, const float* lse, const bf16* dout,
                    bf16* dq, bf16* dk, bf16* dv, float* dtable, Stream stream) {
  const Operands in{out, dout, lse, nullptr, p.keep};
  const GradientResults to{dq, dk, dv, nullptr, nullptr};
  const bool has_bias = p.problem.table != nullptr;
  if (p.problem.depth <= 64)
    (has_bias ? launch_backward<64, true> : launch_backward<64, false>)(p, in, to, dtable, stream);
  else
    (has_bias ? launch_backward<128, true> : launch_backward<128, false>)(p, in, to, dtable,
                                                                          stream);
}

}  // namespace quintet::QT_GPU::attention
