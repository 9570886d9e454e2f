// A block owns a few columns of the weights (all rows k of them) for up to 8 rows of x. Its warps
// read different rows of the weights, 16 bytes a lane, several rows ahead and the first ones before
// anything else; partial sums are joined over lanes, then over warps. The norm's factor is a number
// a row, so it is multiplied at the end and nobody waits for it.

#include "kernels/decode_matmul/byte_tiles.cuh"
#include "kernels/decode_matmul/skinny.cuh"
#include "kernels/decode_matmul/skinny_matmul_gpu.h"
#include "runtime/base/check.h"

namespace quintet::QT_GPU {
namespace {

constexpr int kColumnsTogether = 4;  // of a warp, when the weights are transposed

/// Sums of the lanes that have the same columns (lane % lanes): first each half of them gives the
/// other one half of its columns away. v[0] is then the sum of column share_of<kCount>(lane).
template <int kCount>
QT_DEVICE void share_sums(float (&v)[kCount], int lanes) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int count = kCount / 2, distance = 16; count > 0; count /= 2, distance /= 2) {
    const bool upper = (lane & distance) != 0;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const float given = upper ? v[i] : v[i + count], kept = upper ? v[i + count] : v[i];
      v[i] = kept + __shfl_xor_sync(kWholeWarp, given, distance);
    }
  }
  for (int distance = 16 / kCount; distance >= lanes; distance /= 2)
    v[0] += __shfl_xor_sync(kWholeWarp, v[0], distance);
}
template <int kCount>
QT_DEVICE int share_of(int lane) {
  int column = 0;
#pragma unroll
  for (int count = kCount / 2, distance = 16; count > 0; count /= 2, distance /= 2)
    column += (lane & distance) != 0 ? count : 0;
  return column;
}

template <typename T, typename W, int kRows, int kMatrices, bool kVector>
__global__ void __launch_bounds__(kSkinnyThreads)
    columns_kernel(const __grid_constant__ SkinnyTask a) {
  // As many bytes under way whatever the weights are.
  constexpr int kLane = kWeights<W>, kAhead = (kMatrices == 2 ? 4 : 8) * (sizeof(W) == 1 ? 2 : 1);
  const SkinnyMatmul& p = a.p;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int width = a.lanes * kLane, step = kSkinnyThreads / a.lanes;
  const int64_t first_row = int64_t{blockIdx.y} * kRows, first_column = int64_t{blockIdx.x} * width;
  const int64_t column = first_column + lane % a.lanes * kLane;
  const int mine = static_cast<int>(threadIdx.x) / a.lanes;  // the row of the weights to begin with
  auto held = simt::shared<float>(0, static_cast<size_t>(a.chunk) * kRows);
  auto partial = simt::shared<float>(static_cast<size_t>(a.chunk) * kRows * sizeof(float),
                                     static_cast<size_t>(kSkinnyWarps * kMatrices * kRows * width));
  auto all_squares =
      simt::shared<float>((static_cast<size_t>(a.chunk) * kRows +
                           static_cast<size_t>(kSkinnyWarps * kMatrices * kRows * width)) *
                              sizeof(float),
                          kSkinnyWarps * kRows);

  WeightWords<W> words[kAhead][kMatrices];
  const auto fetch_row = [&](int64_t k, WeightWords<W>(&to)[kMatrices]) {
    const int64_t left = k < p.k ? p.n - column : 0;
#pragma unroll
    for (int m = 0; m < kMatrices; ++m)
      fetch<W, kVector>(static_cast<const W*>(m == 0 ? p.weights : p.gate) + k * p.n + column, left,
                        to[m]);
  };
#pragma unroll
  for (int u = 0; u < kAhead; ++u) fetch_row(mine + u * step, words[u]);
  simt::start_next();
  simt::wait_for_previous();

  // A thread's output, if it has one: a block has at most 8 rows of 32 columns.
  const int own_row = static_cast<int>(threadIdx.x) / width;
  const int own_column = static_cast<int>(threadIdx.x) % width;
  const bool owns =
      own_row < kRows && first_row + own_row < p.rows && first_column + own_column < p.n;
  const float residual =
      owns ? residual_at<T>(p, first_row + own_row, first_column + own_column) : 0.0f;
  float scales[kMatrices];
#pragma unroll
  for (int m = 0; m < kMatrices; ++m)
    scales[m] = column_scale<W>(m == 0 ? p.weight_scales : p.gate_scales, first_column + own_column, p.n);
  float sums[kMatrices][kRows][kLane] = {}, squares[kRows] = {};
  for (int64_t begin = 0; begin < p.k; begin += a.chunk) {
    const int count = p.k - begin < a.chunk ? static_cast<int>(p.k - begin) : a.chunk;
    if (begin > 0) __syncthreads();
    hold_rows<T, kRows>(p, first_row, begin, count, held, squares,
                        [](int r, int i) { return i * kRows + r; });
    __syncthreads();
    for (int base = 0; base < count; base += kAhead * step) {
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int i = base + u * step + mine;
        float w[kMatrices][kLane];
#pragma unroll
        for (int m = 0; m < kMatrices; ++m) unpack_weights<W>(words[u][m], w[m]);
        fetch_row(begin + i + kAhead * step, words[u]);
        if (i >= count) continue;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const float x = held[i * kRows + r];
#pragma unroll
          for (int m = 0; m < kMatrices; ++m)
#pragma unroll
            for (int c = 0; c < kLane; ++c) sums[m][r][c] += x * w[m][c];
        }
      }
    }
  }

  leave_squares(squares, all_squares);
  const int share = lane % a.lanes * kLane + share_of<kLane>(lane);
  const bool writes = lane % (32 / kLane) < a.lanes;
#pragma unroll
  for (int m = 0; m < kMatrices; ++m)
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      share_sums(sums[m][r], a.lanes);
      if (writes) partial[((warp * kMatrices + m) * kRows + r) * width + share] = sums[m][r][0];
    }
  __syncthreads();
  if (!owns) return;
  const float factor = norm_factor<kRows>(p, all_squares, own_row);
  float total[kMatrices] = {};
#pragma unroll
  for (int w = 0; w < kSkinnyWarps; ++w)
#pragma unroll
    for (int m = 0; m < kMatrices; ++m)
      total[m] += partial[((w * kMatrices + m) * kRows + own_row) * width + own_column];
  finish<T>(p, first_row + own_row, first_column + own_column, factor * scales[0] * total[0],
            kMatrices == 2 ? factor * scales[kMatrices - 1] * total[kMatrices - 1] : 0.0f, residual);
}

/// Weights [n, k]: a warp owns kColumnsTogether outputs of each row, its lanes share k.
template <typename T, typename W, int kRows, bool kVector>
__global__ void __launch_bounds__(kSkinnyThreads)
    transposed_kernel(const __grid_constant__ SkinnyTask a) {
  constexpr int kLane = kWeights<W>, kAhead = sizeof(W) == 1 ? 4 : 2, kStep = 32 * kLane;
  const SkinnyMatmul& p = a.p;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t first_row = int64_t{blockIdx.y} * kRows;
  const int64_t first_column = (int64_t{blockIdx.x} * kSkinnyWarps + warp) * kColumnsTogether;
  auto held = simt::shared<float>(0, static_cast<size_t>(a.chunk) * kRows);
  auto all_squares = simt::shared<float>(static_cast<size_t>(a.chunk) * kRows * sizeof(float),
                                         kSkinnyWarps * kRows);

  WeightWords<W> words[kAhead][kColumnsTogether];
  const auto fetch_part = [&](int64_t k, WeightWords<W>(&to)[kColumnsTogether]) {
#pragma unroll
    for (int c = 0; c < kColumnsTogether; ++c)
      fetch<W, kVector>(static_cast<const W*>(p.weights) + (first_column + c) * p.k + k,
                        first_column + c < p.n ? p.k - k : 0, to[c]);
  };
#pragma unroll
  for (int u = 0; u < kAhead; ++u) fetch_part(u * kStep + lane * kLane, words[u]);
  simt::start_next();
  simt::wait_for_previous();

  float sums[kColumnsTogether][kRows] = {}, squares[kRows] = {};
  for (int64_t begin = 0; begin < p.k; begin += a.chunk) {
    const int count = p.k - begin < a.chunk ? static_cast<int>(p.k - begin) : a.chunk;
    if (begin > 0) __syncthreads();
    hold_rows<T, kRows>(p, first_row, begin, count, held, squares,
                        [&](int r, int i) { return r * a.chunk + i; });
    __syncthreads();
    for (int base = 0; base < count; base += kAhead * kStep) {
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int first = base + u * kStep + lane * kLane;
        float w[kColumnsTogether][kLane];
#pragma unroll
        for (int c = 0; c < kColumnsTogether; ++c) unpack_weights<W>(words[u][c], w[c]);
        fetch_part(begin + first + kAhead * kStep, words[u]);
        if (first >= count) continue;
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
          for (int i = 0; i < kLane; ++i) {
            const float x = kVector || first + i < count ? held[r * a.chunk + first + i] : 0.0f;
#pragma unroll
            for (int c = 0; c < kColumnsTogether; ++c) sums[c][r] += x * w[c][i];
          }
      }
    }
  }

  leave_squares(squares, all_squares);
  float mine = 0;
#pragma unroll
  for (int c = 0; c < kColumnsTogether; ++c)
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float sum = warp_sum(sums[c][r]);
      if (lane == r * kColumnsTogether + c) mine = sum;
    }
  __syncthreads();
  const int r = lane / kColumnsTogether;
  const int64_t column = first_column + lane % kColumnsTogether;
  if (r < kRows && first_row + r < p.rows && column < p.n)
    finish<T>(p, first_row + r, column,
              norm_factor<kRows>(p, all_squares, r) * column_scale<W>(p.weight_scales, column, p.n) * mine,
              0, residual_at<T>(p, first_row + r, column));
}

unsigned divided(int64_t a, int64_t b) { return static_cast<unsigned>((a + b - 1) / b); }

/// As narrow as makes a block for most multiprocessors of a large GPU, but no wider than 64 bytes.
int lanes_for(int64_t n, int lane) {
  for (int lanes = 4; lanes > 1; lanes /= 2)
    if (n >= int64_t{96} * lanes * lane) return lanes;
  return 1;
}

template <typename T, typename W, int kRows, bool kVector>
void launch_rows(const SkinnyMatmul& p, Stream stream) {
  const int64_t most = kHeldElements / kRows;
  SkinnyTask task{p, p.transposed ? 1 : lanes_for(p.n, kWeights<W>),
                  static_cast<int>(p.k < most ? (p.k + 3) / 4 * 4 : most)};
  const int width = task.lanes * kWeights<W>;
  const size_t matrices = p.gate != nullptr ? 2 : 1;
  const size_t partials =
      p.transposed ? 0 : kSkinnyWarps * matrices * kRows * static_cast<size_t>(width);
  const int64_t columns = p.transposed ? kSkinnyWarps * kColumnsTogether : width;
  const simt::Launch how{
      .grid = dim3(divided(p.n, columns), divided(p.rows, kRows)),
      .block = kSkinnyThreads,
      .shared = (static_cast<size_t>(task.chunk) * kRows + partials + kSkinnyWarps * kRows) *
                sizeof(float),
      .stream = stream,
      .early = true};
  if (p.transposed)
    simt::launch(transposed_kernel<T, W, kRows, kVector>, how, task);
  else if (p.gate != nullptr)
    simt::launch(columns_kernel<T, W, kRows, 2, kVector>, how, task);
  else
    simt::launch(columns_kernel<T, W, kRows, 1, kVector>, how, task);
}

template <typename T, typename W>
void launch_weights(const SkinnyMatmul& p, Stream stream) {
  const bool vector =
      (p.transposed ? p.k : p.n) % kWeights<W> == 0 && are_aligned({p.weights, p.gate});
  if (!vector) return launch_rows<T, W, 4, false>(p, stream);
  if (p.rows == 1) return launch_rows<T, W, 1, true>(p, stream);
  if (p.rows == 2) return launch_rows<T, W, 2, true>(p, stream);
  if (p.rows <= 4) return launch_rows<T, W, 4, true>(p, stream);
  launch_rows<T, W, 8, true>(p, stream);
}

template <typename T>
void launch_typed(const SkinnyMatmul& p, Stream stream) {
  switch (p.weight_dtype) {
    case DType::i8:
      return launch_weights<T, int8_t>(p, stream);
    case DType::u8:
      return launch_weights<T, simt::e4m3>(p, stream);
    case DType::f32:
      if constexpr (std::is_same_v<T, float>) return launch_weights<T, float>(p, stream);
      break;
    case DType::bf16:
      return launch_weights<T, bf16>(p, stream);
    default:
      break;
  }
  QT_ASSERT(false);
}

}  // namespace

void skinny_matmul_gpu(const SkinnyMatmul& p, Stream stream) {
  QT_ASSERT(p.rows >= 0 && p.k > 0 && p.n > 0 && !(p.transposed && p.gate != nullptr));
  QT_ASSERT(p.out_dtype == DType::f32 || p.out_dtype == p.dtype);
  QT_ASSERT(size_of(p.weight_dtype) > 1 ||
            (p.weight_scales != nullptr && (p.gate == nullptr) == (p.gate_scales == nullptr)));
  if (p.rows == 0) return;
  if (p.takes_tiles() && are_aligned({p.x, p.weights, p.gate, p.norm})) return byte_tiles(p, stream);
  if (p.dtype == DType::f32) return launch_typed<float>(p, stream);
  QT_ASSERT(p.dtype == DType::bf16);
  launch_typed<bf16>(p, stream);
}

}  // namespace quintet::QT_GPU
