// Products of 5 to 64 rows with weights in bfloat16 or in a byte, on tensor cores: weights go from memory to
// registers, become bfloat16 there, exactly, and are multiplied with no copy of theirs in between. A block owns
// 16 columns (of weights in a byte 32) for up to 64 rows, of two matrices 32; its warps share k in chunks of 32, so
// nothing is read twice by a block and nobody waits before the sums are joined.
//
// The order of k within a chunk is free, as long as both operands agree: lane 4g + t has k 8t..8t+7, for
// x 16 bytes of a row, and for the weights the 4 bytes of its columns, kTiles g and on, of each of 8 rows.
// Product s of the two of a chunk takes k 8t + 4s.. as mma.m16n8k16's k 2t, 2t+1, 2t+8, 2t+9; its column g
// of tile j is kTiles g + j.

#include "kernels/decode_matmul/tiles.cuh"

namespace quintet::QT_GPU {
namespace {

constexpr int kChunk = 32;  // of k
template <typename W>
constexpr int kTiles = 4 / sizeof(W);  // of 8 columns

/// The lane's weights of one chunk as bfloat16 pairs: [product][tile] of two.
template <typename W>
QT_DEVICE void as_operands(const uint32_t (&words)[8], uint32_t (&b)[2][kTiles<W>][2]) {
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    if constexpr (sizeof(W) == 2) {
      b[i / 4][0][i / 2 % 2] = __byte_perm(words[i], words[i + 1], 0x5410);
      b[i / 4][1][i / 2 % 2] = __byte_perm(words[i], words[i + 1], 0x7632);
    } else {
      float low[4], high[4];
      simt::widen<W>(words[i], low);
      simt::widen<W>(words[i + 1], high);
#pragma unroll
      for (int j = 0; j < kTiles<W>; ++j) b[i / 4][j][i / 2 % 2] = simt::pack_bf16(low[j], high[j]);
    }
  }
}

/// x times the norm's scales, rounded; adds the squares of x.
QT_DEVICE void apply_norm(const float (&norm)[8], uint32_t (&x)[4], float& squares) {
  float v[8];
  unpack_words<bf16>(x, v);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    squares += v[i] * v[i];
    v[i] *= norm[i];
  }
  pack_words<bf16>(v, x);
}

template <typename W, int kRowTiles, int kMatrices>
__global__ void __launch_bounds__(kSmallBatchThreads)
    tiles_kernel(const __grid_constant__ SmallBatchMatmul p) {
  constexpr int kColumns = 8 * kTiles<W>;
  // Chunks of a warp under way at a time: of bfloat16 all of k = 768; bytes have no registers left.
  constexpr int kAhead = sizeof(W) == 2 && kRowTiles <= 2 ? 3 : 1;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4, t = lane % 4;
  const int64_t first_row = int64_t{blockIdx.y} * 16 * kRowTiles;
  const int64_t first_column = int64_t{blockIdx.x} * kColumns,
                column = first_column + kTiles<W> * g;
  auto partial = simt::shared<float>(0, kSmallBatchWarps * kMatrices * 16 * kColumns);
  auto all_squares =
      simt::shared<float>(kSmallBatchWarps * kMatrices * 16 * kColumns * sizeof(float),
                          kSmallBatchWarps * 16 * kRowTiles);

  uint32_t words[kAhead][kMatrices][8];
  const auto fetch_chunk = [&](int64_t chunk, uint32_t(&to)[kMatrices][8]) {
    const int64_t k = chunk * kChunk + 8 * t;  // p.k is a multiple of 8
#pragma unroll
    for (int m = 0; m < kMatrices; ++m)
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const auto* from = static_cast<const W*>(m == 0 ? p.weights : p.gate);
        uint32_t word[1] = {0};
        if (k < p.k && column < p.n) load_words(from + (k + i) * p.n + column, word);
        to[m][i] = word[0];
      }
  };
#pragma unroll
  for (int u = 0; u < kAhead; ++u) fetch_chunk(warp + u * kSmallBatchWarps, words[u]);
  simt::start_next();
  simt::wait_for_previous();

  float sums[kMatrices][kRowTiles][kTiles<W>][4] = {}, squares[kRowTiles][2] = {};
  const int64_t chunks = (p.k + kChunk - 1) / kChunk;
  for (int64_t first = warp; first < chunks; first += kAhead * kSmallBatchWarps) {
    uint32_t x[kAhead][kRowTiles][2][4];  // [rows g, g + 8][pairs of k]
#pragma unroll
    for (int u = 0; u < kAhead; ++u)
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int64_t row = first_row + 16 * r + 8 * half + g;
          const int64_t k = (first + u * kSmallBatchWarps) * kChunk + 8 * t;
#pragma unroll
          for (int i = 0; i < 4; ++i) x[u][r][half][i] = 0;
          if (row < p.rows && k < p.k)
            load_words(static_cast<const bf16*>(p.x) + row * p.k + k, x[u][r][half]);
        }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int64_t chunk = first + u * kSmallBatchWarps, k = chunk * kChunk + 8 * t;
      uint32_t b[kMatrices][2][kTiles<W>][2];
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) as_operands<W>(words[u][m], b[m]);
      fetch_chunk(chunk + kAhead * kSmallBatchWarps, words[u]);
      if (p.norm != nullptr && k < p.k) {
        float norm[8];
        load_constant<8>(p.norm + k, norm);
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
          for (int half = 0; half < 2; ++half) apply_norm(norm, x[u][r][half], squares[r][half]);
      }
#pragma unroll
      for (int s = 0; s < 2; ++s)
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          const uint32_t a[4] = {x[u][r][0][2 * s], x[u][r][1][2 * s], x[u][r][0][2 * s + 1],
                                 x[u][r][1][2 * s + 1]};
#pragma unroll
          for (int m = 0; m < kMatrices; ++m)
#pragma unroll
            for (int j = 0; j < kTiles<W>; ++j)
              simt::mma_m16n8k16(sums[m][r][j], a, b[m][s][j], sums[m][r][j], bf16{});
        }
    }
  }

#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = squares[r][half];
      sum += __shfl_xor_sync(kWholeWarp, sum, 1);
      sum += __shfl_xor_sync(kWholeWarp, sum, 2);
      if (t == 0) all_squares[warp * 16 * kRowTiles + 16 * r + 8 * half + g] = sum;
    }
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
    if (r > 0) __syncthreads();
#pragma unroll
    for (int m = 0; m < kMatrices; ++m)
#pragma unroll
      for (int j = 0; j < kTiles<W>; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)  // rows g, g + 8; columns 2t, 2t + 1 of the tile
          partial[((warp * kMatrices + m) * 16 + g + i / 2 * 8) * kColumns +
                  kTiles<W> * (2 * t + i % 2) + j] = sums[m][r][j][i];
    __syncthreads();
    for (int at = static_cast<int>(threadIdx.x); at < 16 * kColumns; at += kSmallBatchThreads) {
      const int64_t row = first_row + 16 * r + at / kColumns, to = first_column + at % kColumns;
      if (row >= p.rows || to >= p.n) continue;
      float total[2] = {}, squared = 0;
      for (int w = 0; w < kSmallBatchWarps; ++w) {
        squared += all_squares[w * 16 * kRowTiles + 16 * r + at / kColumns];
#pragma unroll
        for (int m = 0; m < kMatrices; ++m)
          total[m] += partial[(w * kMatrices + m) * 16 * kColumns + at];
      }
      const float factor =
          p.norm == nullptr ? 1.0f : 1.0f / sqrtf(squared / static_cast<float>(p.k) + p.eps);
      finish<bf16>(
          p, row, to, factor * column_scale<W>(p.weight_scales, to, p.n) * total[0],
          kMatrices == 2 ? factor * column_scale<W>(p.gate_scales, to, p.n) * total[1] : 0.0f,
          residual_at<bf16>(p, row, to));
    }
  }
}

template <typename W, int kRowTiles>
void launch_tiles(const SmallBatchMatmul& p, Stream stream) {
  constexpr bool kGated = kRowTiles <= 2;  // of more, sums of two matrices would fill all registers
  constexpr int kColumns = 8 * kTiles<W>;
  const unsigned matrices = p.gate != nullptr ? 2 : 1;
  const simt::Launch how{
      .grid = dim3(static_cast<unsigned>((p.n + kColumns - 1) / kColumns),
                   static_cast<unsigned>((p.rows + 16 * kRowTiles - 1) / (16 * kRowTiles))),
      .block = kSmallBatchThreads,
      .shared = kSmallBatchWarps * (matrices * 16 * kColumns + 16 * kRowTiles) * sizeof(float),
      .stream = stream,
      .early = true};
  if (matrices == 1) return simt::launch(tiles_kernel<W, kRowTiles, 1>, how, p);
  if constexpr (kGated) simt::launch(tiles_kernel<W, kRowTiles, 2>, how, p);
}

template <typename W>
void launch_weights(const SmallBatchMatmul& p, Stream stream) {
  if (p.rows <= 16) return launch_tiles<W, 1>(p, stream);
  if (p.rows <= 32 || p.gate != nullptr) return launch_tiles<W, 2>(p, stream);
  launch_tiles<W, 4>(p, stream);
}

}  // namespace

void small_batch_tiles(const SmallBatchMatmul& p, Stream stream) {
  if (p.weight_dtype == DType::bf16) return launch_weights<bf16>(p, stream);
  if (p.weight_dtype == DType::i8) return launch_weights<int8_t>(p, stream);
  launch_weights<simt::e4m3>(p, stream);
}

}  // namespace quintet::QT_GPU
