// Grouped products of any sizes, addresses and dtype, in float32 without tensor cores: blocks of 256
// threads, each with 4 x 4 sums of a tile of 64 x 64.

#include "kernels/mlp/grouped.cuh"

namespace quintet::QT_GPU::mlp {
namespace {

constexpr int kSide = 64, kTerms = 16, kThreads = 256, kEach = 4;
constexpr int kRow = kSide + 4;  // of 16 bytes, in other banks than the row before
constexpr int kTileFloats = kTerms * kRow;

template <Kind kKind, typename T>
struct Operands {
  const Grouped<T>& p;
  const Tile& tile;

  /// Row `r` and column `c` of the tile, term `k` of pair or branch `i`; 0 outside.
  __device__ float x(int i, int r, int k) const {
    const int row = tile.row + r, term = tile.begin + k;
    if (row >= tile.row_end || term >= tile.end) return 0;
    return simt::to_float(kKind == Kind::kWeights ? p.x[0][int64_t{term} * p.depth + row]
                                                  : p.x[i][int64_t{row} * p.depth + term]);
  }
  __device__ float w(int i, int k, int c) const {
    const int term = tile.begin + k, column = tile.column + c;
    if (column >= p.columns || term >= tile.end) return 0;
    const int64_t row = kKind == Kind::kWeights ? term : int64_t{tile.expert} * p.depth + term;
    return simt::to_float(kIsTransposed<kKind>
                              ? p.w[i][(int64_t{tile.expert} * p.columns + column) * p.depth + term]
                              : p.w[i][row * p.columns + column]);
  }
};

template <Kind kKind, typename T>
__global__ void __launch_bounds__(kThreads) general_kernel(const __grid_constant__ Grouped<T> p) {
  constexpr int kCount = kBranches<kKind>;
  auto x = simt::shared<float>(0, kTileFloats);
  auto w = simt::shared<float>(sizeof(float) * kTileFloats, kCount * kTileFloats);
  const int thread = static_cast<int>(threadIdx.x);
  const int r0 = thread / 16 * kEach, c0 = thread % 16 * kEach;
  Tile tile;
  if (!TileWalk<kKind, kSide, kSide>(p).find(static_cast<int>(blockIdx.x), tile)) return;
  const Operands<kKind, T> operands{p, tile};
  const int steps = steps_of<kKind, kTerms>(p, tile), each = max(steps / p.pairs(), 1);
  float sums[kEach][kCount][kEach] = {};
  for (int step = 0; step < steps; ++step) {
    const int pair = kIsTransposed<kKind> ? step / each : 0;
    const int term = (kIsTransposed<kKind> ? step % each : step) * kTerms;
    for (int i = thread; i < kSide * kTerms; i += kThreads) {
      // Neighbouring threads read neighbouring addresses.
      const int by_term = i % kTerms, by_side = i % kSide;
      const int xk = kKind == Kind::kWeights ? i / kSide : by_term;
      const int xr = kKind == Kind::kWeights ? by_side : i / kTerms;
      x[xk * kRow + xr] = operands.x(pair, xr, term + xk);
      const int wk = kIsTransposed<kKind> ? by_term : i / kSide;
      const int wc = kIsTransposed<kKind> ? i / kTerms : by_side;
      for (int b = 0; b < kCount; ++b)
        w[b * kTileFloats + wk * kRow + wc] = operands.w(pair + b, term + wk, wc);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kTerms; ++k)
#pragma unroll
      for (int b = 0; b < kCount; ++b)
#pragma unroll
        for (int r = 0; r < kEach; ++r)
#pragma unroll
          for (int c = 0; c < kEach; ++c)
            sums[r][b][c] += x[k * kRow + r0 + r] * w[b * kTileFloats + k * kRow + c0 + c];
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < kEach; ++r)
#pragma unroll
    for (int c = 0; c < kEach; ++c) {
      const int row = tile.row + r0 + r, column = tile.column + c0 + c;
      float one[kCount][1];
#pragma unroll
      for (int b = 0; b < kCount; ++b) one[b][0] = sums[r][b][c];
      if (row >= tile.row_end || column >= p.columns) continue;
      float h0[1] = {}, h1[1] = {};
      if constexpr (kKind == Kind::kHiddenGrad) {
        const int64_t at = int64_t{row} * p.columns + column;
        load(p.h0 + at, h0);
        if (p.h1 != nullptr) load(p.h1 + at, h1);
      }
      put<kKind, AnyGate>(p, tile, row, column, one, h0, h1);
    }
}

}  // namespace

template <typename T>
void grouped_general(Kind kind, const Grouped<T>& p, Stream stream) {
  for_kind(kind, [&](auto kKind) {
    simt::launch(general_kernel<kKind(), T>,
                 {.grid = static_cast<unsigned>(TileWalk<kKind(), kSide, kSide>::most(p)),
                  .block = kThreads,
                  .shared = sizeof(float) * kTileFloats * (1 + kBranches<kKind()>),
                  .stream = stream},
                 p);
  });
}
template void grouped_general(Kind kind, const Grouped<float>& p, Stream stream);
template void grouped_general(Kind kind, const Grouped<bf16>& p, Stream stream);

}  // namespace quintet::QT_GPU::mlp
