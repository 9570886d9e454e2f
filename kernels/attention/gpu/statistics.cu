// What the gradient reads of the forward pass, a row of queries at a time, and the sum that ends
// the gradient of the bias table.

#include <cmath>

#include "kernels/attention/gpu/prepare.cuh"
#include "kernels/attention/gpu/statistics.cuh"

namespace quintet::QT_GPU::attention {
namespace {

constexpr int kThreads = 256;

// A lane's part of <x, y>.
template <typename T>
__device__ float row_dot(const T* x, const T* y, int depth, int lane) {
  float sum = 0;
  for (int c = lane; c < depth; c += kRowLanes)
    sum = fmaf(simt::to_float(x[c]), simt::to_float(y[c]), sum);
  return sum;
}

// The same with 16-byte loads: depth a multiple of 8, rows aligned.
__device__ float row_dot_wide(const bf16* x, const bf16* y, int depth, int lane) {
  float sum = 0;
  for (int c = 8 * lane; c < depth; c += 8 * kRowLanes)
    sum = add_products(*reinterpret_cast<const uint4*>(x + c),
                       *reinterpret_cast<const uint4*>(y + c), sum);
  return sum;
}

// Rows in the order of memory, [b, padded query, head], kRowLanes threads each.
template <typename T, bool kWide>
__global__ void statistics_kernel(const __grid_constant__ Problem p, int padded, const T* out,
                                  const T* dout, const float* lse, float unit, float* lse_out,
                                  float* delta_out) {
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kRowLanes;
  const int lane = static_cast<int>(threadIdx.x) % kRowLanes;
  const int head = static_cast<int>(row % p.heads);
  const int query = static_cast<int>(row / p.heads % padded);
  const int b = static_cast<int>(row / p.heads / padded);
  const bool is_real = b < p.batch && query < p.queries;
  float delta = 0;
  if (is_real) {
    const int64_t at = p.offset(p.queries, b, query, head);
    if constexpr (kWide)
      delta = row_dot_wide(out + at, dout + at, p.depth, lane);
    else
      delta = row_dot(out + at, dout + at, p.depth, lane);
  }
  delta = sum_of_row(delta);
  if (lane != 0 || b >= p.batch) return;
  const int64_t item = static_cast<int64_t>(b) * p.heads + head, to = item * padded + query;
  lse_out[to] =
      is_real ? log_sum_of(p, lse + item * p.queries + query, p.row_at(b, query), unit) : kVanish;
  delta_out[to] = delta;
}

// A block an entry of the table. `addend`: null, dtable or another.
__global__ void reduce_bias_diagonals_kernel(const __grid_constant__ Problem p,
                                             const float* dbias_diagonals, int parts,
                                             const float* addend, float* dtable) {
  const int head = static_cast<int>(blockIdx.x) / p.buckets;
  const int bucket = static_cast<int>(blockIdx.x) % p.buckets, t = static_cast<int>(threadIdx.x);
  const int length = 2 * p.reach + 1;
  auto sums = simt::shared<double>(0, kThreads);
  auto bounds = simt::shared<int>(sizeof(double) * kThreads, 2);
  // The entries of a bucket follow each other.
  if (t == 0) {
    bounds[0] = length;
    bounds[1] = 0;
  }
  __syncthreads();
  for (int i = t; i < length; i += kThreads) {
    if (p.rule.of(i - p.reach) != bucket) continue;
    if (i == 0 || p.rule.of(i - 1 - p.reach) != bucket) bounds[0] = i;
    if (i + 1 == length || p.rule.of(i + 1 - p.reach) != bucket) bounds[1] = i + 1;
  }
  __syncthreads();
  const int begin = bounds[0], width = bounds[1] - begin;
  double sum = 0;
  const int64_t count = width <= 0 ? 0 : static_cast<int64_t>(p.batch) * parts * width;
  for (int64_t i = t; i < count; i += kThreads) {
    const int64_t row = i / width, b = row / parts, part = row % parts;
    sum += dbias_diagonals[((b * p.heads + head) * parts + part) * length + begin + i % width];
  }
  sums[t] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (t < half) sums[t] += sums[t + half];
  }
  if (t != 0) return;
  const int64_t entry = static_cast<int64_t>(head) * p.buckets + bucket;
  const auto total = static_cast<float>(sums[0]);
  dtable[entry] = addend == nullptr ? total : addend[entry] + total;
}

}  // namespace

Statistics make_statistics(const Prepared& prepared, const View& out, const View& lse,
                           const View& dout, float unit, Stream stream) {
  const Problem& p = prepared.problem;
  const int64_t padded = padded_queries(p.queries);
  const int64_t rows = padded * p.batch * p.heads;
  auto* log_sums = prepared.scratch<float>(rows);
  auto* deltas = prepared.scratch<float>(rows);
  if (rows == 0) return {log_sums, deltas};
  const simt::Launch how{
      .grid = dim3(static_cast<unsigned>((rows * kRowLanes + kThreads - 1) / kThreads)),
      .block = dim3(kThreads),
      .stream = stream};
  const auto address =
      reinterpret_cast<uintptr_t>(out.pointer) | reinterpret_cast<uintptr_t>(dout.pointer);
  const auto* saved = static_cast<const float*>(lse.pointer);
  const auto launch_of = [&]<typename T>(auto kernel, T) {
    simt::launch(kernel, how, p, static_cast<int>(padded), static_cast<const T*>(out.pointer),
                 static_cast<const T*>(dout.pointer), saved, unit, log_sums, deltas);
  };
  if (prepared.dtype == DType::f32)
    launch_of(statistics_kernel<float, false>, float{});
  else if (p.depth % 8 == 0 && address % 16 == 0)
    launch_of(statistics_kernel<bf16, true>, bf16{});
  else
    launch_of(statistics_kernel<bf16, false>, bf16{});
  return {log_sums, deltas};
}

void reduce_bias_diagonals(const Prepared& p, const float* dbias_diagonals, int parts,
                           float* dtable, Stream stream) {
  const int entries = p.problem.heads * p.problem.buckets;
  if (entries == 0) return;
  simt::launch(reduce_bias_diagonals_kernel,
               simt::Launch{.grid = dim3(static_cast<unsigned>(entries)),
                            .block = dim3(kThreads),
                            .shared = sizeof(double) * kThreads + 2 * sizeof(int),
                            .stream = stream},
               p.problem, dbias_diagonals, parts, p.dtable_addend, dtable);
}

}  // namespace quintet::QT_GPU::attention
