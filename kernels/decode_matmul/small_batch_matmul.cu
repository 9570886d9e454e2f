// Products with one matrix, whose first weights are read before anything else; kernels: columns.cuh
// and, of transposed weights, the one here.

#include "kernels/decode_matmul/columns.cuh"
#include "kernels/decode_matmul/small_batch_experts.h"
#include "kernels/decode_matmul/small_batch_matmul_gpu.h"
#include "kernels/decode_matmul/tiles.cuh"
#include "runtime/base/check.h"

namespace quintet::QT_GPU {
namespace {

constexpr int kColumnsTogether = 4;  // of a warp, when the weights are transposed

/// Weights [n, k]: a warp owns kColumnsTogether outputs of each row, its lanes share k.
template <typename T, typename W, int kRows, bool kVector>
__global__ void __launch_bounds__(kSmallBatchThreads)
    transposed_kernel(const __grid_constant__ SmallBatchTask a) {
  constexpr int kLane = kWeights<W>, kAhead = sizeof(W) == 1 ? 4 : 2, kStep = 32 * kLane;
  const SmallBatchMatmul& p = a.p;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const ConsecutiveRows<kRows> rows(p);
  const int64_t first_column = (int64_t{blockIdx.x} * kSmallBatchWarps + warp) * kColumnsTogether;
  auto staged = simt::shared<float>(0, static_cast<size_t>(a.chunk) * kRows);
  auto all_squares = simt::shared<float>(static_cast<size_t>(a.chunk) * kRows * sizeof(float),
                                         kSmallBatchWarps * kRows);

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
    stage_rows<T, kRows, kVector>(p, rows, begin, count, staged, squares,
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
            const float x = kVector || first + i < count ? staged[r * a.chunk + first + i] : 0.0f;
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
  if (r < rows.count && column < p.n)
    finish<T>(p, rows.to(r), column,
              norm_factor<kRows>(p, all_squares, r) *
                  column_scale<W>(p.weight_scales, column, p.n) * mine,
              0, residual_at<T>(p, rows.to(r), column));
}

template <typename T, typename W, int kRows, bool kVector>
void launch_rows(const SmallBatchMatmul& p, Stream stream) {
  // What tensor cores multiply has no kernel of eight rows of its own: few shapes are left to it.
  constexpr bool kTiled = std::is_same_v<T, bf16> && !std::is_same_v<W, float>;
  constexpr int kOwn = kTiled && kRows > 4 ? 4 : kRows;
  if (!p.transposed)
    return launch_columns<ConsecutiveRows<kOwn>, T, W, kOwn, kVector>(p, divided(p.rows, kOwn),
                                                                      stream);
  const unsigned rows = divided(p.rows, kRows);
  const int64_t most = kHeldElements / kRows;
  const SmallBatchTask task{p, 1, static_cast<int>(p.k < most ? (p.k + 3) / 4 * 4 : most)};
  simt::launch(
      transposed_kernel<T, W, kRows, kVector>,
      {.grid = dim3(divided(p.n, kSmallBatchWarps * kColumnsTogether), rows),
       .block = kSmallBatchThreads,
       .shared = (static_cast<size_t>(task.chunk) + kSmallBatchWarps) * kRows * sizeof(float),
       .stream = stream,
       .early = true},
      task);
}

template <typename T, typename W>
void launch_weights(const SmallBatchMatmul& p, Stream stream) {
  if (!takes_vectors<T, W>(p, p.transposed ? p.k : p.n))
    return launch_rows<T, W, 4, false>(p, stream);
  if (p.rows == 1) return launch_rows<T, W, 1, true>(p, stream);
  if (p.rows == 2) return launch_rows<T, W, 2, true>(p, stream);
  if (p.rows <= 4) return launch_rows<T, W, 4, true>(p, stream);
  launch_rows<T, W, 8, true>(p, stream);
}

}  // namespace

void small_batch_matmul_gpu(const SmallBatchMatmul& p, Stream stream) {
  QT_ASSERT(p.rows >= 0 && p.k > 0 && p.n > 0 && !(p.transposed && p.gate != nullptr));
  QT_ASSERT(p.out_dtype == DType::f32 || p.out_dtype == p.dtype);
  QT_ASSERT(size_of(p.weight_dtype) > 1 ||
            (p.weight_scales != nullptr && (p.gate == nullptr) == (p.gate_scales == nullptr)));
  if (p.rows == 0) return;
  if (p.takes_tiles() && are_aligned({p.x, p.weights, p.gate, p.norm}))
    return small_batch_tiles(p, stream);
  if (p.experts.logits != nullptr) return small_batch_experts(p, stream);
  for_operands(p, [&]<typename T, typename W>(T, W) { launch_weights<T, W>(p, stream); });
}

}  // namespace quintet::QT_GPU
