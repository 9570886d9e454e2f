// Kernels that scripts/check_sass must accept or refuse; compiled by check_sass_test.py only.

#include <cstdint>

namespace {

template <int kSteps>
__global__ void products(float* out, const uint32_t* in) {
  float d[4] = {};
  for (int i = 0; i < kSteps; ++i)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(in[0]), "r"(in[1]), "r"(in[2]), "r"(in[3]), "r"(in[4]), "r"(in[5]));
  out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}

__global__ void warpgroup_products(float* out, uint64_t a, uint64_t b) {
#if __CUDA_ARCH_FEAT_SM90_ALL
  float d[4] = {};
  asm volatile("wgmma.fence.sync.aligned;");
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "l"(a), "l"(b));
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;");
  out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
#endif
}

// More values than the bounds leave registers for.
__global__ void __launch_bounds__(1024, 2) spills(float* x, int n) {
  float v[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) v[i] = x[threadIdx.x + i * 1024];
  for (int k = 0; k < n; ++k) {
#pragma unroll
    for (int i = 0; i < 96; ++i) v[i] = v[i] * v[(i + 7) % 96] + x[k];
  }
#pragma unroll
  for (int i = 0; i < 96; ++i) x[threadIdx.x + i * 1024] = v[i];
}

__global__ void reverses(float* x) {
  __shared__ float row[4096];
  row[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = row[4095 - threadIdx.x];
}

template <int kBytes>
__global__ void copies(float* to, const float* from) {
  __shared__ alignas(16) float row[128];
  const auto place = static_cast<uint32_t>(__cvta_generic_to_shared(row + 4 * threadIdx.x));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(place),
               "l"(from + 4 * threadIdx.x), "n"(kBytes));
  asm volatile("cp.async.wait_all;" ::: "memory");
  to[threadIdx.x] = row[4 * threadIdx.x];
}

}  // namespace

void use(float* x, const uint32_t* y) {
  products<3><<<1, 32>>>(x, y);
  warpgroup_products<<<1, 128>>>(x, 0, 0);
  spills<<<1, 1024>>>(x, 3);
  reverses<<<1, 32>>>(x);
  copies<16><<<1, 32>>>(x, x);
  copies<4><<<1, 32>>>(x, x);
}
