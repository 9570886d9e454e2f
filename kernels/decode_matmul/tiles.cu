// Products of 5 to 128 rows with weights in bfloat16 or in a byte, on tensor cores. A block owns some columns of the
// weights, of one matrix or of two, for 16, 32 or 64 rows; its eight warps share k in chunks of 32, so nothing is read
// twice by a block and no warp waits for another before the sums are joined.
//
// Weights go to shared memory by copies of 16 bytes (cp.async), asked for several chunks ahead: what is under way takes no
// registers. Every warp has a ring of its own, so the ring needs no barrier of the block. `ldmatrix` transposes them into
// operands; a pair of bytes counts as one element of it, and bytes become bfloat16 in registers, exactly.
//
// The order of k within a chunk is free, as long as both operands agree: lane 4g + t has k 8t..8t+7 of x, 16 bytes of a
// row, read as they are. Product s of the two of a chunk takes k 8t + 4s + (0, 1, 2, 3) as mma.m16n8k16's k 2t, 2t+1,
// 2t+8, 2t+9. So a sum is, whatever the number of rows and of columns of a block: for each warp w chunks w, w + 8, ... in
// turn, both products of each; then over the warps in order.

#include <limits>

#include "kernels/decode_matmul/tiles.cuh"
#include "runtime/base/check.h"

namespace quintet::QT_GPU {
namespace {

constexpr int kChunk = 32;       // of k
constexpr int kGroupBytes = 32;  // of a row of weights: two units of 16 bytes
constexpr int kUnitBytes = 16;
constexpr int kGroupUnits = kChunk * kGroupBytes / kUnitBytes;  // of a chunk, in shared memory
/// Groups of a warp under way at a time. A block's eight warps have 64 KiB: with one block a multiprocessor 2.5 times what
/// 4.8 TB/s and 700 ns of latency ask for, 25 KiB (README.md).
constexpr int kRing = 8;
template <typename W>
constexpr int kTiles = kGroupBytes / 8 / static_cast<int>(sizeof(W));  // of 8 columns, of a group

/// Where unit `half` of row k of a chunk stands among the units of its group: by operand, so that the eight rows of a
/// matrix of ldmatrix lie in different banks, as do eight copies of neighbouring lanes.
QT_DEVICE int unit_at(int k, int half) {
  const int row = k / 8 * 2 + k % 2, matrix = k / 2 % 2 + 2 * half, product = k / 4 % 2;
  return (product * 4 + matrix) * 8 + (row ^ (2 * matrix));
}

/// What lane 4g + t has of product s of a group: for k 2t, 2t+1 and for k 2t+8, 2t+9 of tile j. Column g of tile j is
/// column_of<W>(j, g) of the group.
template <typename W>
QT_DEVICE void load_operands(simt::Shared<uint32_t> group, int s, uint32_t (&b)[kTiles<W>][2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, matrix = lane / 8, row = lane % 8;
  uint32_t words[4];
  simt::ldmatrix_x4_trans(words,
                          &group[((s * 4 + matrix) * 8 + (row ^ (2 * matrix))) * (kUnitBytes / 4)]);
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t word = words[2 * half + i];
      if constexpr (sizeof(W) == 2) {
        b[half][i] = word;
      } else {  // columns 2g, 2g + 1 of the first k, then of the second
        float v[4];
        simt::widen<W>(word, v);
        b[2 * half][i] = simt::pack_bf16(v[0], v[2]);
        b[2 * half + 1][i] = simt::pack_bf16(v[1], v[3]);
      }
    }
}
template <typename W>
QT_DEVICE int column_of(int tile, int g) {
  return sizeof(W) == 2 ? 8 * tile + g : 16 * (tile / 2) + 2 * g + tile % 2;
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

/// A block of 16 kRowTiles rows and kGroups groups of columns of each of kMatrices.
template <typename W, int kRowTiles, int kMatrices, int kGroups>
__global__ void __launch_bounds__(kSmallBatchThreads)
    tiles_kernel(const __grid_constant__ SmallBatchMatmul p) {
  constexpr int kOfGroup = kGroupBytes / sizeof(W), kColumns = kOfGroup * kGroups;
  constexpr int kParts = kMatrices * kGroups, kStages = kRing / kParts;
  // Chunks of x of a warp under way, and of the norm's scales: in registers.
  constexpr int kSums = kParts * kRowTiles * kTiles<W>;
  constexpr int kAhead = kRowTiles == 1 ? 3 : kSums > 16 ? 1 : 2, kNorms = kRowTiles == 1 ? 3 : 1;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4, t = lane % 4;
  const int64_t first_row = int64_t{blockIdx.y} * 16 * kRowTiles;
  const int64_t first_column = int64_t{blockIdx.x} * kColumns;
  const auto depth = static_cast<int>(p.k);
  const int chunks = (depth + kChunk - 1) / kChunk;
  auto all_squares = simt::shared<float>(0, kSmallBatchWarps * 16 * kRowTiles);
  constexpr size_t kSquareBytes = sizeof(float) * kSmallBatchWarps * 16 * kRowTiles;
  auto ring = simt::shared<uint32_t>(kSquareBytes, kSmallBatchWarps * kRing * kGroupUnits * 4);
  const auto group_at = [&](int stage, int part) {
    return ring + ((warp * kStages + stage) * kParts + part) * kGroupUnits * 4;
  };

  // A lane copies one unit of each of 16 rows of a group, twice. What is not there is not read, whatever its address.
  const int64_t unit_column = first_column + lane % 2 * (kUnitBytes / sizeof(W));
  const auto copy_chunk = [&](int chunk) {
    const int k = chunk * kChunk + lane / 2, stage = chunk / kSmallBatchWarps % kStages;
    const int64_t at = k * p.n + unit_column;
    if (chunk < chunks)
#pragma unroll
      for (int part = 0; part < kParts; ++part)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int after = part % kGroups * kOfGroup;
          const auto* from = static_cast<const W*>(part < kGroups ? p.weights : p.gate);
          simt::cp_async_16(&group_at(stage, part)[unit_at(16 * i + lane / 2, lane % 2) * 4],
                            from + at + 16 * i * p.n + after,
                            k + 16 * i < depth && unit_column + after < p.n);
        }
    simt::cp_async_commit();
  };
#pragma unroll 1
  for (int u = 0; u < kStages; ++u) copy_chunk(warp + u * kSmallBatchWarps);
  float norm[kNorms][8];
  const auto load_norm = [&](int chunk, float(&to)[8]) {
    const int k = chunk * kChunk + 8 * t;  // p.k is a multiple of 8
    if (p.norm != nullptr && k < depth) load_constant<8>(p.norm + k, to);
  };
#pragma unroll
  for (int u = 0; u < kNorms; ++u) load_norm(warp + u * kSmallBatchWarps, norm[u]);
  simt::start_next();
  simt::wait_for_previous();

  uint32_t x[kAhead][kRowTiles][2][4];  // [rows g, g + 8][pairs of k]
  const int row = static_cast<int>(first_row) + g, rows = static_cast<int>(p.rows);
  const auto load_x = [&](int chunk, uint32_t(&to)[kRowTiles][2][4]) {
    const int k = chunk * kChunk + 8 * t, at = row * depth + k;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int after = 16 * r + 8 * half;
#pragma unroll
        for (int i = 0; i < 4; ++i) to[r][half][i] = 0;
        if (row + after < rows && k < depth)
          load_words(static_cast<const bf16*>(p.x) + at + after * depth, to[r][half]);
      }
  };
#pragma unroll
  for (int u = 0; u < kAhead; ++u) load_x(warp + u * kSmallBatchWarps, x[u]);
  float sums[kParts][kRowTiles][kTiles<W>][4] = {}, squares[kRowTiles][2] = {};
  for (int first = warp; first < chunks; first += kAhead * kSmallBatchWarps) {
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int chunk = first + u * kSmallBatchWarps;
      if (chunk >= chunks) break;
      if (p.norm != nullptr && chunk * kChunk + 8 * t < depth) {
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            apply_norm(norm[u % kNorms], x[u][r][half], squares[r][half]);
        load_norm(chunk + kNorms * kSmallBatchWarps, norm[u % kNorms]);
      }
      simt::cp_async_wait<kStages - 1>();
      __syncwarp();  // all lanes' copies are there
#pragma unroll
      for (int s = 0; s < 2; ++s)
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          uint32_t b[kTiles<W>][2];
          load_operands<W>(group_at(chunk / kSmallBatchWarps % kStages, part), s, b);
#pragma unroll
          for (int r = 0; r < kRowTiles; ++r) {
            const uint32_t a[4] = {x[u][r][0][2 * s], x[u][r][1][2 * s], x[u][r][0][2 * s + 1],
                                   x[u][r][1][2 * s + 1]};
#pragma unroll
            for (int j = 0; j < kTiles<W>; ++j)
              simt::mma_m16n8k16(sums[part][r][j], a, b[j], sums[part][r][j], bf16{});
          }
        }
      __syncwarp();  // all lanes have read the stage
      copy_chunk(chunk + kStages * kSmallBatchWarps);
      load_x(chunk + kAhead * kSmallBatchWarps, x[u]);
    }
  }
  simt::cp_async_wait<0>();

  constexpr int kTile = 16 * kColumns, kOutputs = kRowTiles * kTile;
  const auto residual_of = [&](int output) {
    return output < kOutputs ? residual_at<bf16>(p, first_row + output / kColumns,
                                                 first_column + output % kColumns)
                             : 0.0f;
  };
  float residual = residual_of(static_cast<int>(threadIdx.x));
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = squares[r][half];
      sum += __shfl_xor_sync(kWholeWarp, sum, 1);
      sum += __shfl_xor_sync(kWholeWarp, sum, 2);
      if (t == 0) all_squares[warp * 16 * kRowTiles + 16 * r + 8 * half + g] = sum;
    }
  // In the ring's place: each warp's sums of 16 rows, [warps, matrices, 16, kColumns], and those of all warps of the
  // block's rows, [row tiles, matrices, 16, kColumns].
  constexpr int kPartials = kSmallBatchWarps * kMatrices * kTile;
  static_assert((kPartials + kMatrices * kOutputs) <= kSmallBatchWarps * kRing * kGroupUnits * 4);
  auto partial = simt::shared<float>(kSquareBytes, kPartials);
  auto totals = simt::shared<float>(kSquareBytes + sizeof(float) * kPartials, kMatrices * kOutputs);
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
    __syncthreads();
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int j = 0; j < kTiles<W>; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)  // rows g, g + 8; columns 2t, 2t + 1 of the tile
          partial[(warp * kMatrices + part / kGroups) * kTile + (g + i / 2 * 8) * kColumns +
                  part % kGroups * kOfGroup + column_of<W>(j, 2 * t + i % 2)] = sums[part][r][j][i];
    __syncthreads();
#pragma unroll 1
    for (int at = static_cast<int>(threadIdx.x); at < kMatrices * kTile; at += kSmallBatchThreads) {
      float total = 0;
#pragma unroll
      for (int w = 0; w < kSmallBatchWarps; ++w) total += partial[w * kMatrices * kTile + at];
      totals[r * kMatrices * kTile + at] = total;
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int output = static_cast<int>(threadIdx.x); output < kOutputs;
       output += kSmallBatchThreads) {
    const float next_residual = residual_of(output + kSmallBatchThreads);
    const int within = output / kColumns;
    const int64_t out_row = first_row + within, column = first_column + output % kColumns;
    if (out_row < p.rows && column < p.n) {
      float squared = 0;
#pragma unroll
      for (int w = 0; w < kSmallBatchWarps; ++w)
        squared += all_squares[w * 16 * kRowTiles + within];
      const float factor =
          p.norm == nullptr ? 1.0f : 1.0f / sqrtf(squared / static_cast<float>(p.k) + p.eps);
      const int at = output / kTile * kMatrices * kTile + output % kTile;
      finish<bf16>(p, out_row, column,
                   factor * column_scale<W>(p.weight_scales, column, p.n) * totals[at],
                   kMatrices == 2 ? factor * column_scale<W>(p.gate_scales, column, p.n) *
                                        totals[at + (kMatrices - 1) * kTile]
                                  : 0.0f,
                   residual);
    }
    residual = next_residual;
  }
}

template <typename W, int kRowTiles, int kMatrices, int kGroups>
void launch_tiles(const SmallBatchMatmul& p, Stream stream) {
  constexpr int64_t kColumns = kGroupBytes / sizeof(W) * kGroups, kRows = 16 * kRowTiles;
  simt::launch(tiles_kernel<W, kRowTiles, kMatrices, kGroups>,
               {.grid = dim3(static_cast<unsigned>((p.n + kColumns - 1) / kColumns),
                             static_cast<unsigned>((p.rows + kRows - 1) / kRows)),
                .block = kSmallBatchThreads,
                .shared = kSmallBatchWarps *
                          (sizeof(float) * kRows + size_t{kRing} * kGroupUnits * kUnitBytes),
                .stream = stream,
                .early = true},
               p);
}

/// Columns of a block of 64 rows: what it reads of x it reads once for all of them, so wide ones are for matrices that
/// make a block for most multiprocessors even so. A block has sums of 64 columns in registers.
template <typename W, int kMatrices>
void launch_64_rows(const SmallBatchMatmul& p, Stream stream) {
  constexpr int kWide = 8 / kTiles<W> / kMatrices;
  constexpr int64_t kColumns = kGroupBytes / sizeof(W) * kWide;
  if constexpr (kWide > 1)
    if (p.n / kColumns * ((p.rows + 63) / 64) >= simt::device().multiprocessors * 3 / 4)
      return launch_tiles<W, 4, kMatrices, kWide>(p, stream);
  launch_tiles<W, 4, kMatrices, 1>(p, stream);
}

template <typename W, int kMatrices>
void launch_rows(const SmallBatchMatmul& p, Stream stream) {
  if (p.rows <= 16) return launch_tiles<W, 1, kMatrices, 1>(p, stream);
  if (p.rows <= 32) return launch_tiles<W, 2, kMatrices, 1>(p, stream);
  launch_64_rows<W, kMatrices>(p, stream);
}

template <typename W>
void launch_weights(const SmallBatchMatmul& p, Stream stream) {
  p.gate != nullptr ? launch_rows<W, 2>(p, stream) : launch_rows<W, 1>(p, stream);
}

}  // namespace

void small_batch_tiles(const SmallBatchMatmul& p, Stream stream) {
  QT_ASSERT(p.rows * p.k <= std::numeric_limits<int32_t>::max());
  if (p.weight_dtype == DType::bf16) return launch_weights<bf16>(p, stream);
  if (p.weight_dtype == DType::i8) return launch_weights<int8_t>(p, stream);
  launch_weights<simt::e4m3>(p, stream);
}

}  // namespace quintet::QT_GPU
