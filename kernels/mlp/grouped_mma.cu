// Grouped products for sm_80 and later: mma.sync on tiles of 128 x 128, cp.async into two buffers of 64
// terms each. A warp has 32 rows and 64 columns; of gated products 32 of each matrix, so that both
// factors of a result lie in one thread.

#include "kernels/matmul/mma_tiles.cuh"
#include "kernels/mlp/grouped.cuh"

namespace quintet::QT_GPU::mlp {
namespace {

constexpr int kRows = 128, kTerms = 64, kThreads = 256;
constexpr int kBox = 64 * 64;  // elements; tiles lie in boxes of 64 columns
constexpr int kTileElements = kRows * kTerms, kBuffer = 2 * kTileElements;
constexpr size_t kSharedBytes = 2 * sizeof(bf16) * kBuffer;
constexpr int kStaged = 32 * 64;  // sums of a warp on their way out, in the buffers' place
static_assert(kThreads / 32 * kStaged * sizeof(float) <= kSharedBytes);

template <Kind kKind>
inline constexpr int kColumns = 128 / kBranches<kKind>;

/// Starts copying rows from `row` on and 64 columns from `column` on of an array [., stride]; what is
/// not before row_end and column_end becomes 0.
template <int kCount>
__device__ void copy_box(simt::Shared<bf16> box, const bf16* from, int64_t stride, int row,
                         int row_end, int column, int column_end) {
#pragma unroll
  for (int n = 0; n < kCount * 8 / kThreads; ++n) {
    const int i = n * kThreads + static_cast<int>(threadIdx.x), r = i / 8, chunk = i % 8;
    const bool is_there = row + r < row_end && column + chunk * 8 < column_end;
    simt::cp_async_16(&box[at_chunk<64>(r, chunk)],
                      is_there ? from + (row + r) * stride + column + chunk * 8 : from, is_there);
  }
}

template <Kind kKind>
__device__ void copy_step(const Grouped<bf16>& p, const Tile& tile, int step, int each,
                          simt::Shared<bf16> x, simt::Shared<bf16> w) {
  if constexpr (kKind == Kind::kWeights) {
    const int term = tile.begin + step * kTerms;
#pragma unroll
    for (int box = 0; box < 2; ++box) {
      copy_box<64>(x + box * kBox, p.x[0], p.depth, term, tile.end, tile.row + 64 * box, p.depth);
      copy_box<64>(w + box * kBox, p.w[0], p.columns, term, tile.end, tile.column + 64 * box,
                   p.columns);
    }
  } else {
    const int pair = kIsTransposed<kKind> ? step / each : 0, term = (step - pair * each) * kTerms;
    const int64_t expert = int64_t{tile.expert} * p.depth * p.columns;
    copy_box<kRows>(x, p.x[pair], p.depth, tile.row, tile.row_end, term, p.depth);
    if constexpr (kIsTransposed<kKind>) {
      copy_box<128>(w, p.w[pair] + expert, p.depth, tile.column, p.columns, term, p.depth);
    } else {
#pragma unroll 1  // both at once need more registers than there are
      for (int box = 0; box < 2; ++box)
        copy_box<64>(w + box * kBox, p.w[kKind == Kind::kGated ? box : 0] + expert, p.columns, term,
                     p.depth, tile.column + (kKind == Kind::kGated ? 0 : 64 * box), p.columns);
    }
  }
}

/// Where the warp's n-th 16 columns lie among the 128 of the tile in shared memory.
template <Kind kKind>
__device__ int stored_column(int warp_column, int n) {
  return kKind == Kind::kGated ? n / 2 * 64 + 32 * warp_column + n % 2 * 16
                               : 64 * warp_column + 16 * n;
}

template <Kind kKind>
__device__ void multiply(simt::Shared<bf16> x, simt::Shared<bf16> w, int warp_row, int warp_column,
                         float (&sums)[2][32]) {
#pragma unroll 2  // likewise
  for (int i = 0; i < kTerms / 16; ++i) {
    uint32_t a[2][4];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const int row = 32 * warp_row + 16 * m;
      if constexpr (kKind == Kind::kWeights)
        load_a_transposed<64>(x + row / 64 * kBox, row % 64, i, a[m]);
      else
        load_a<64>(x, row, i, a[m]);
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int column = stored_column<kKind>(warp_column, n);
      uint32_t b[4];
      if constexpr (kIsTransposed<kKind>)
        load_b<64>(w, column, i, b);
      else
        load_b_transposed<64>(w + column / 64 * kBox, column % 64, i, b);
#pragma unroll
      for (int m = 0; m < 2; ++m) multiply_add(sums[m], n, a[m], b);
    }
  }
}

/// Of a warp's 32 rows and 64 columns, gated 32 of each matrix, through its part of shared memory.
template <Kind kKind, typename G>
__device__ void store_sums(const Grouped<bf16>& p, const Tile& tile, int warp_row, int warp_column,
                           const float (&sums)[2][32]) {
  constexpr uint32_t kAcross = kUnitsAcross<kKind, 64 / kBranches<kKind>>, kDown = 32 / kAcross;
  const uint32_t lane = threadIdx.x % 32, lane_at = pair_at(lane);
  const uint32_t column = lane % kAcross * kUnit<kKind>;
  const auto staged = simt::shared<float>(
      sizeof(float) * kStaged * static_cast<size_t>(2 * warp_row + warp_column), kStaged);
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float pair[2] = {sums[m][4 * j + 2 * half], sums[m][4 * j + 2 * half + 1]};
        store(&staged[lane_at ^ staged_at(16 * m + 8 * half, 8 * j)], pair);
      }
  __syncwarp();
  const auto staged_row = [&](uint32_t n) { return kDown * n + lane / kAcross; };
  put_units<kKind, G, 32 / kDown>(
      p, tile,
      [&](uint32_t n) {
        return std::pair(
            tile.row + 32 * warp_row + static_cast<int>(staged_row(n)),
            tile.column + 64 / kBranches<kKind> * warp_column + static_cast<int>(column));
      },
      [&](uint32_t n, auto& unit) {
#pragma unroll
        for (int b = 0; b < kBranches<kKind>; ++b)
          read_staged(staged, staged_row(n), 32 * b + column, unit[b]);
      });
}

template <Kind kKind, typename G>
__global__ void __launch_bounds__(kThreads, 2) mma_kernel(const __grid_constant__ Grouped<bf16> p) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warp_row = warp / 2, warp_column = warp % 2;
  const auto x = [](int step) {
    return simt::shared<bf16>(sizeof(bf16) * kBuffer * (step % 2), kTileElements);
  };
  const auto w = [](int step) {
    return simt::shared<bf16>(sizeof(bf16) * (kBuffer * (step % 2) + kTileElements), kTileElements);
  };
  Tile tile;
  if (!TileWalk<kKind, kRows, kColumns<kKind>>(p).find(static_cast<int>(blockIdx.x), tile)) return;
  const int steps = steps_of<kKind, kTerms>(p, tile), each = steps / p.pairs();
  const auto copy = [&](int step) {
    if (step < steps) copy_step<kKind>(p, tile, step, each, x(step), w(step));
    simt::cp_async_commit();
  };
  float sums[2][32] = {};
  copy(0);
  for (int step = 0; step < steps; ++step) {
    simt::cp_async_wait<0>();
    __syncthreads();  // this step is here, the one before has been read by all
    copy(step + 1);
    multiply<kKind>(x(step), w(step), warp_row, warp_column, sums);
  }
  __syncthreads();  // both buffers have been read
  store_sums<kKind, G>(p, tile, warp_row, warp_column, sums);
}

}  // namespace

void grouped_mma(Kind kind, const Grouped<bf16>& p, Stream stream) {
  for_kernel(kind, p.gate, [&](auto kKind, auto gate) {
    simt::launch(
        mma_kernel<kKind(), decltype(gate)>,
        {.grid = static_cast<unsigned>(TileWalk<kKind(), kRows, kColumns<kKind()>>::most(p)),
         .block = kThreads,
         .shared = kSharedBytes,
         .stream = stream},
        p);
  });
}

}  // namespace quintet::QT_GPU::mlp
