// Grouped products for sm_90a: as many blocks as multiprocessors take tiles of 128 x 256 (gated: 128 of
// each matrix) in turn. One warp lets the TMA engine fill a ring of four buffers of 64 terms, running
// ahead into the next tile; two warpgroups multiply 64 rows each. Tiles that reach beyond an expert's
// rows read its neighbour's, which are not stored; where rows are the terms of sums (kWeights), those
// of the last step that belong to others are cleared in shared memory.

#include <algorithm>

#include "kernels/matmul/wgmma_tiles.cuh"
#include "kernels/mlp/grouped.cuh"

namespace quintet::QT_GPU::mlp {
namespace {

constexpr int kRows = 128, kTerms = 64, kStages = 4, kThreads = 3 * kGroup;
constexpr int kBox = kTerms * kBoxColumns;  // elements
constexpr int kXBoxes = 2, kWBoxes = 4;     // of a buffer
constexpr uint32_t kBoxBytes = sizeof(bf16) * kBox, kBufferBytes = (kXBoxes + kWBoxes) * kBoxBytes;
// Sums on their way out: of each consuming warp 16 rows of 64, gated 8 of each matrix.
constexpr int kStagedRows = 16, kStaged = kStagedRows * 64, kConsumers = 8;
constexpr int kParts = 4;  // of 64 columns, gated of half the rows, one after the other
constexpr size_t kStagedAt = kStages * kBufferBytes;
constexpr size_t kBarriersAt = kStagedAt + kConsumers * kStaged * sizeof(float);
constexpr size_t kSharedBytes = kBarriersAt + 2 * kStages * sizeof(uint64_t);
static_assert(kSharedBytes <= 227 * 1024);

template <Kind kKind>
inline constexpr int kColumns = 256 / kBranches<kKind>;

struct Maps {
  simt::TensorMap x[2], w[2];
};

#if QT_SM90A

__device__ uint64_t* full(int stage) {
  return &simt::shared<uint64_t>(kBarriersAt, 2 * kStages)[stage];
}
__device__ uint64_t* empty(int stage) { return full(kStages + stage); }
__device__ simt::Shared<bf16> x_tile(int stage) {
  return simt::shared<bf16>(stage * kBufferBytes, kXBoxes * kBox);
}
__device__ simt::Shared<bf16> w_tile(int stage) {
  return simt::shared<bf16>(stage * kBufferBytes + kXBoxes * kBoxBytes, kWBoxes * kBox);
}
__device__ simt::Shared<float> staged_of(uint32_t warp) {
  return simt::shared<float>(kStagedAt + warp * kStaged * sizeof(float), kStaged);
}

template <Kind kKind>
__device__ void load_step(const Maps& maps, const Tile& tile, int step, int each, int stage) {
  const auto x = x_tile(stage), w = w_tile(stage);
  uint64_t* bar = full(stage);
  simt::mbarrier_arrive_expect_tx(bar, kBufferBytes);
  if constexpr (kKind == Kind::kWeights) {
    const int term = tile.begin + step * kTerms;
#pragma unroll
    for (int box = 0; box < kXBoxes; ++box)
      simt::tma_load_2d(&x[box * kBox], maps.x[0], bar, tile.row + box * kBoxColumns, term);
#pragma unroll
    for (int box = 0; box < kWBoxes; ++box)
      simt::tma_load_2d(&w[box * kBox], maps.w[0], bar, tile.column + box * kBoxColumns, term);
  } else {
    const int pair = kIsTransposed<kKind> ? step / each : 0, term = (step - pair * each) * kTerms;
    simt::tma_load_2d(&x[0], maps.x[pair], bar, term, tile.row);
    if constexpr (kIsTransposed<kKind>) {
      simt::tma_load_3d(&w[0], maps.w[pair], bar, term, tile.column, tile.expert);
    } else {
#pragma unroll
      for (int box = 0; box < kWBoxes; ++box) {
        const int branch = box * kBranches<kKind> / kWBoxes;
        simt::tma_load_3d(&w[box * kBox], maps.w[branch], bar,
                          tile.column + box * kBoxColumns - branch * kColumns<kKind>, term,
                          tile.expert);
      }
    }
  }
}

template <Kind kKind>
__device__ void produce(const Grouped<bf16>& p, const Maps& maps) {
  TileWalk<kKind, kRows, kColumns<kKind>> walk(p);
  Cursor<kStages> at;
  Tile tile;
  for (int n = static_cast<int>(blockIdx.x); walk.find(n, tile); n += static_cast<int>(gridDim.x)) {
    const int steps = steps_of<kKind, kTerms>(p, tile);
    for (int step = 0; threadIdx.x == 0 && step < steps; ++step, at.advance()) {
      simt::mbarrier_wait(empty(at.stage()), at.parity() ^ 1U);
      load_step<kKind>(maps, tile, step, steps / p.pairs(), at.stage());
    }
    __syncwarp();
  }
}

/// Rows from `count` on of all boxes of a buffer become 0; by both warpgroups.
__device__ void clear_terms(int stage, int count) {
  const auto words = simt::shared<uint32_t>(stage * kBufferBytes, kBufferBytes / 4);
  const int rest = (kTerms - count) * kRowBytes / 4;  // words of a box
  for (int i = static_cast<int>(threadIdx.x) - kGroup; i < (kXBoxes + kWBoxes) * rest;
       i += 2 * kGroup)
    words[i / rest * static_cast<int>(kBoxBytes / 4) + count * kRowBytes / 4 + i % rest] = 0;
  simt::fence_async_shared();
  simt::named_barrier_sync(1, 2 * kGroup);
}

template <Kind kKind>
__device__ void multiply(int stage, int group,
                         float (&sums)[kBranches<kKind>][kColumns<kKind> / 2]) {
  constexpr bool kFromRows = kKind == Kind::kWeights;  // terms are rows of x
  const auto x = x_tile(stage), w = w_tile(stage);
#pragma unroll
  for (int i = 0; i < kTerms / 16; ++i)
#pragma unroll
    for (int b = 0; b < kBranches<kKind>; ++b) {
      const uint64_t a = kFromRows ? terms_in_rows<kTerms>(x, i, group)
                                   : terms_in_columns<kRows>(x, 64 * group, i);
      if constexpr (kIsTransposed<kKind>)
        simt::wgmma<kColumns<kKind>, kFromRows, false>(
            sums[b], a, terms_in_columns<kColumns<kKind>>(w, 0, i), true);
      else
        simt::wgmma<kColumns<kKind>, kFromRows, true>(
            sums[b], a, terms_in_rows<kTerms>(w, i, b * kColumns<kKind> / kBoxColumns), true);
    }
  simt::wgmma_commit();
}

/// Stages a part of a warp's 16 rows: 64 columns; gated: of 8 rows, both matrices.
template <Kind kKind>
__device__ void stage_part(uint32_t part,
                           const float (&sums)[kBranches<kKind>][kColumns<kKind> / 2],
                           simt::Shared<float> staged) {
  constexpr bool kTwo = kKind == Kind::kGated;
  const uint32_t lane_at = pair_at(threadIdx.x % 32);
#pragma unroll
  for (int n = 0; n < kParts; ++n) {
    if (static_cast<uint32_t>(n) != part) continue;  // registers have no index
#pragma unroll
    for (int eight = 0; eight < 2; ++eight)
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int branch = kTwo ? eight : 0, half = kTwo ? n % 2 : eight;
        const int first = 4 * (8 * (kTwo ? n / 2 : n) + j) + 2 * half;
        const float pair[2] = {sums[branch][first], sums[branch][first + 1]};
        store(&staged[lane_at ^ staged_at(8 * eight, 8 * j)], pair);
      }
  }
}

/// Of a warp's 16 rows from `row` on.
template <Kind kKind, typename G>
__device__ void store_sums(const Grouped<bf16>& p, const Tile& tile, int row,
                           const float (&sums)[kBranches<kKind>][kColumns<kKind> / 2]) {
  constexpr bool kTwo = kKind == Kind::kGated;
  constexpr uint32_t kAcross = kUnitsAcross<kKind>, kDown = 32 / kAcross;
  constexpr uint32_t kUnitsOfPart = kStagedRows / kBranches<kKind> / kDown;
  const uint32_t lane = threadIdx.x % 32, column = lane % kAcross * kUnit<kKind>;
  const auto staged = staged_of(threadIdx.x / 32 - kGroup / 32);
  const auto staged_row = [&](uint32_t n) { return n % kUnitsOfPart * kDown + lane / kAcross; };
  put_units<kKind, G, kParts * kUnitsOfPart>(
      p, tile,
      [&](uint32_t n) {
        const uint32_t part = n / kUnitsOfPart;
        return std::pair(row + static_cast<int>((kTwo ? part % 2 * 8 : 0) + staged_row(n)),
                         tile.column + static_cast<int>((kTwo ? part / 2 : part) * 64 + column));
      },
      [&](uint32_t n, auto& unit) {
        if (n % kUnitsOfPart == 0) {
          __syncwarp();  // the part before has been read
          stage_part<kKind>(n / kUnitsOfPart, sums, staged);
          __syncwarp();
        }
#pragma unroll
        for (int b = 0; b < kBranches<kKind>; ++b)
          read_staged(staged, 8 * b + staged_row(n), column, unit[b]);
      });
}

template <Kind kKind, typename G>
__device__ void consume(const Grouped<bf16>& p) {
  const int group = static_cast<int>(threadIdx.x) / kGroup - 1;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const auto release = [](int stage) {
    if (threadIdx.x % 32 == 0) simt::mbarrier_arrive(empty(stage));
  };
  TileWalk<kKind, kRows, kColumns<kKind>> walk(p);
  Cursor<kStages> at;
  Tile tile;
  float sums[kBranches<kKind>][kColumns<kKind> / 2];
  for (int n = static_cast<int>(blockIdx.x); walk.find(n, tile); n += static_cast<int>(gridDim.x)) {
    const int steps = steps_of<kKind, kTerms>(p, tile);
#pragma unroll
    for (auto& branch : sums)
#pragma unroll
      for (float& sum : branch) sum = 0;
    int before = 0;
    for (int step = 0; step < steps; ++step, at.advance()) {
      const int stage = at.stage();
      simt::mbarrier_wait(full(stage), at.parity());
      if constexpr (kKind == Kind::kWeights) {
        const int count = tile.end - tile.begin - step * kTerms;
        if (count < kTerms) clear_terms(stage, count);
      }
#pragma unroll
      for (auto& branch : sums) simt::wgmma_fence_registers(branch);
      simt::wgmma_fence();
      multiply<kKind>(stage, group, sums);
      simt::wgmma_wait<1>();
      if (step > 0) release(before);
      before = stage;
    }
    simt::wgmma_wait<0>();
#pragma unroll
    for (auto& branch : sums) simt::wgmma_fence_registers(branch);
    if (steps > 0) release(before);
    store_sums<kKind, G>(p, tile, tile.row + 64 * group + 16 * warp, sums);
  }
}

#endif

template <Kind kKind, typename G>
__global__ void __launch_bounds__(kThreads, 1)
    wgmma_kernel([[maybe_unused]] const __grid_constant__ Grouped<bf16> p,
                 [[maybe_unused]] const __grid_constant__ Maps maps) {
#if QT_SM90A
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      simt::mbarrier_init(full(stage), 1);
      simt::mbarrier_init(empty(stage), kConsumers);  // a thread of each consuming warp
    }
    simt::fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x < kGroup) {
    simt::register_dealloc<40>();
    if (threadIdx.x < 32) produce<kKind>(p, maps);
  } else {
    simt::register_alloc<232>();
    consume<kKind, G>(p);
  }
#endif
}

/// x [rows, columns] in boxes of `box_rows` x 64.
simt::TensorMap rows_map(const bf16* x, int64_t rows, int64_t columns, int box_rows) {
  return simt::make_tensor_map(x, {columns, rows}, {2 * columns}, {kBoxColumns, box_rows},
                               simt::Swizzle::k128);
}
/// w [experts, rows, columns] likewise.
simt::TensorMap weights_map(const bf16* w, int64_t experts, int64_t rows, int64_t columns,
                            int box_rows) {
  return simt::make_tensor_map(w, {columns, rows, experts}, {2 * columns, 2 * columns * rows},
                               {kBoxColumns, box_rows, 1}, simt::Swizzle::k128);
}

template <Kind kKind>
Maps maps_of(const Grouped<bf16>& p) {
  Maps maps;
  for (int i = 0; i < 2; ++i) {
    const bf16* x = p.x[p.x[i] == nullptr ? 0 : i];
    const bf16* w = p.w[p.w[i] == nullptr ? 0 : i];
    maps.x[i] = rows_map(x, p.rows, p.depth, kKind == Kind::kWeights ? kTerms : kRows);
    maps.w[i] = kKind == Kind::kWeights ? rows_map(w, p.rows, p.columns, kTerms)
                : kIsTransposed<kKind>
                    ? weights_map(w, p.experts, p.columns, p.depth, kColumns<kKind>)
                    : weights_map(w, p.experts, p.depth, p.columns, kTerms);
  }
  return maps;
}

}  // namespace

void grouped_wgmma(Kind kind, const Grouped<bf16>& p, Stream stream) {
  for_kernel(kind, p.gate, [&](auto kKind, auto gate) {
    const int tiles = TileWalk<kKind(), kRows, kColumns<kKind()>>::most(p);
    simt::launch(wgmma_kernel<kKind(), decltype(gate)>,
                 {.grid = static_cast<unsigned>(std::min(tiles, simt::device().multiprocessors)),
                  .block = kThreads,
                  .shared = kSharedBytes,
                  .stream = stream},
                 p, maps_of<kKind()>(p));
  });
}

}  // namespace quintet::QT_GPU::mlp
