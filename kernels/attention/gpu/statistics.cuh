#pragma once
// What gradients need of the forward pass for each query of a head: lse, and delta = <dout, out>. The
// arithmetic, the same for the kernel of its own (statistics.cu) and where another kernel does it.

#include "kernels/attention/gpu/device_problem.cuh"

namespace quintet::QT_GPU::attention {

inline constexpr int kRowLanes = 8;  // of a warp, that share a row of a head
inline constexpr float kVanish =
    1e30F;  // lse of rows that are not there: exp(score - kVanish) is 0

/// sum + <x, y> of 8 elements.
__device__ inline float add_products(const uint4& x, const uint4& y, float sum) {
  const uint32_t xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 u = simt::unpack<bf16>(xs[i]), w = simt::unpack<bf16>(ys[i]);
    sum = fmaf(u.x, w.x, fmaf(u.y, w.y, sum));
  }
  return sum;
}

/// Over the lanes that share a row. The whole warp calls it.
__device__ inline float sum_of_row(float x) {
#pragma unroll
  for (int mask = kRowLanes / 2; mask > 0; mask /= 2) x += __shfl_xor_sync(0xffffffffU, x, mask);
  return x;
}

/// lse of a query, which is at `lse`, in multiples of 1 / unit; of one without an allowed key log(keys), as its
/// scores count as 0. Its range is Problem::row_ranges()[range].
__device__ inline float log_sum_of(const Problem& p, const float* lse, int64_t range, float unit) {
  if (p.ranges == nullptr || (p.row_ranges()[range].y & kNoneBit) == 0) return unit * *lse;
  return unit * logf(static_cast<float>(opaque(p.keys)));
}

}  // namespace quintet::QT_GPU::attention
