// Warpgroup products: operand layouts, order with other work, and a product fed by tensor copies.

#include "tests/simt/device_array.cuh"

namespace quintet::QT_GPU {
namespace {

using simt::bf16;
using simt::Swizzle;

constexpr int kDepth = 64;  // of the products of one tile

/// How an operand of `rows` (of M or N) by kDepth lies in shared memory.
template <Swizzle kSwizzle, bool kTransposed>
struct Layout {
  static constexpr uint32_t kSpan = span_of(kSwizzle), kSpanElements = kSpan / 2;

  /// Byte offset of element (row, k).
  __device__ static uint32_t offset(uint32_t row, uint32_t k, uint32_t rows) {
    if (kTransposed) {
      if (kSwizzle == Swizzle::kNone) return row / 8 * (kDepth * 16) + k * 16 + row % 8 * 2;
      return row / kSpanElements * (kDepth * kSpan) +
             simt::swizzled(k * kSpan + row % kSpanElements * 2, kSwizzle);
    }
    if (kSwizzle == Swizzle::kNone) return k / 8 * (rows * 16) + row * 16 + k % 8 * 2;
    return k / kSpanElements * (rows * kSpan) +
           simt::swizzled(row * kSpan + k % kSpanElements * 2, kSwizzle);
  }

  /// Descriptor of rows `first_row`.. (a multiple of 64) and elements 16 step .. 16 step + 15 of K.
  __device__ static uint64_t descriptor(const char* base, uint32_t first_row, uint32_t step,
                                        uint32_t rows, Swizzle claimed) {
    uint32_t start, leading, stride;
    if (kTransposed) {
      if (kSwizzle == Swizzle::kNone) {
        start = first_row / 8 * (kDepth * 16) + step * 256, leading = 128, stride = kDepth * 16;
      } else {
        start = first_row / kSpanElements * (kDepth * kSpan) + step * 16 * kSpan;
        leading = kDepth * kSpan, stride = 8 * kSpan;
      }
    } else if (kSwizzle == Swizzle::kNone) {
      start = first_row * 16 + step * 2 * (rows * 16), leading = rows * 16, stride = 128;
    } else {
      start = step * 16 / kSpanElements * (rows * kSpan) + first_row * kSpan +
              step * 16 % kSpanElements * 2;
      leading = 0, stride = 8 * kSpan;
    }
    return simt::smem_descriptor(base + start, leading, stride, claimed);
  }
};

/// d [128, N] = a [128, 64] b [64, N] by two warpgroups. a is [128, 64], bt is b transposed, [N,
/// 64].
template <int N, Swizzle kA, bool kTransA, Swizzle kB, bool kTransB, bool kRegisters>
__global__ void __launch_bounds__(256, 1)
    warpgroup_product(const bf16* a, const bf16* bt, float* d, int fault) {
  using A = Layout<kA, kTransA>;
  using B = Layout<kB, kTransB>;
  auto as = simt::shared<char>(0, 128 * kDepth * 2);
  auto bs = simt::shared<char>(128 * kDepth * 2, N * kDepth * 2);
  const uint32_t thread = threadIdx.x, group = thread / 128, warp = thread / 32 % 4,
                 lane = thread % 32;
  for (uint32_t i = thread; i < 128 * kDepth; i += 256) {
    simt::shared_cast<bf16>(as)[A::offset(i / kDepth, i % kDepth, 128) / 2] = a[i];
  }
  for (uint32_t i = thread; i < N * kDepth; i += 256) {
    simt::shared_cast<bf16>(bs)[B::offset(i / kDepth, i % kDepth, N) / 2] = bt[i];
  }
  if (fault != 1) simt::fence_async_shared();
  if (fault != 2) __syncthreads();

  float acc[N / 2];
#pragma unroll
  for (int i = 0; i < N / 2; ++i) acc[i] = 1000.0f;  // the first product does not accumulate
  uint32_t ar[kDepth / 16][4];
  const uint32_t g = lane / 4, t = lane % 4;
  if constexpr (kRegisters) {
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step) {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t row = group * 64 + warp * 16 + g + 8 * (i % 2);
        const uint32_t k = static_cast<uint32_t>(step) * 16 + 2 * t + 8 * (i / 2);
        ar[step][i] = a[row * kDepth + k].bits | static_cast<uint32_t>(a[row * kDepth + k + 1].bits)
                                                     << 16;
      }
    }
  }
  simt::wgmma_fence_registers(acc);
  if (fault != 3) simt::wgmma_fence();
#pragma unroll
  for (uint32_t step = 0; step < kDepth / 16; ++step) {
    const Swizzle claimed = fault == 6 ? (kB == Swizzle::k64 ? Swizzle::k128 : Swizzle::k64) : kB;
    const uint64_t db = B::descriptor(bs, 0, step, N, claimed);
    if constexpr (kRegisters) {
      simt::wgmma<N, kTransB>(acc, ar[step], db, step > 0);
    } else {
      simt::wgmma<N, kTransA, kTransB>(acc, A::descriptor(as, group * 64, step, 128, kA), db,
                                       step > 0);
    }
  }
  simt::wgmma_commit();
  if (fault == 5 && thread == 0) simt::shared_cast<bf16>(bs)[0] = simt::from_float<bf16>(3.0f);
  if (fault == 4)
    simt::wgmma_wait<1>();
  else
    simt::wgmma_wait<0>();
  simt::wgmma_fence_registers(acc);
#pragma unroll
  for (uint32_t i = 0; i < N / 2; ++i) {
    d[(group * 64 + warp * 16 + g + 8 * (i % 4 / 2)) * N + i / 4 * 8 + 2 * t + i % 2] = acc[i];
  }
}

template <int N, Swizzle kA, bool kTransA, Swizzle kB, bool kTransB, bool kRegisters = false>
void add_product(simt_test::Cases& out, const char* name) {
  const auto a = values(128 * kDepth, 24), b = values(static_cast<size_t>(kDepth) * N, 25);
  out.push_back(
      {std::string("wgmma, ") + name,
       90,
       1e-5f,
       product(a, b, 128, N, kDepth),
       [=](int fault) {
         DeviceArray<bf16> ad(to_bf16(a)), bd(to_bf16(transposed(b, kDepth, N)));
         auto d = results(static_cast<size_t>(128) * N);
         simt::launch(warpgroup_product<N, kA, kTransA, kB, kTransB, kRegisters>,
                      {.block = 256, .shared = static_cast<size_t>(128 + N) * kDepth * 2}, ad.get(),
                      bd.get(), d.get(), fault);
         return d.host();
       },
       {"proxy fence removed", "barrier removed", "wgmma_fence removed", "wait for one group fewer",
        "operand overwritten before the wait", "other swizzle in the descriptor"}});
}

constexpr int kStages = 2, kN = 64, kM = 64;

/// d [64, 64] = a [64, k] bt[64, k]^T: warp 4 loads tiles of 64 columns, warps 0-3 multiply.
__global__ void __launch_bounds__(160, 1)
    fed_product(const __grid_constant__ simt::TensorMap a,
                const __grid_constant__ simt::TensorMap bt, float* d, int tiles, int fault) {
  constexpr uint32_t kTileBytes = kM * 128, kStageBytes = 2 * kTileBytes;
  auto full = simt::shared<uint64_t>(0, kStages);
  auto empty = simt::shared<uint64_t>(64, kStages);
  auto stages = simt::shared<char>(1024, kStages * kStageBytes);
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      simt::mbarrier_init(full + s, 1);
      simt::mbarrier_init(empty + s, 4);
    }
    simt::fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= 128) {
    if (threadIdx.x > 128) return;
    for (int t = 0; t < tiles; ++t) {
      const int s = t % kStages;
      if (fault != 1)
        simt::mbarrier_wait(empty + s, (static_cast<unsigned>(t / kStages) & 1u) ^ 1u);
      simt::mbarrier_arrive_expect_tx(full + s, kStageBytes);
      simt::tma_load_2d(stages + s * kStageBytes, a, full + s, t * 64, 0);
      simt::tma_load_2d(stages + s * kStageBytes + kTileBytes, bt, full + s, t * 64, 0);
    }
    return;
  }
  float acc[kN / 2];
  simt::wgmma_fence_registers(acc);
  for (int t = 0; t < tiles; ++t) {
    const int s = t % kStages;
    if (fault != 2) simt::mbarrier_wait(full + s, static_cast<unsigned>(t / kStages) & 1u);
    simt::wgmma_fence();
#pragma unroll
    for (uint32_t step = 0; step < 4; ++step) {
      const char* base = stages + (s * kStageBytes + step * 32);
      simt::wgmma<kN>(acc, simt::smem_descriptor(base, 0, 1024, Swizzle::k128),
                      simt::smem_descriptor(base + kTileBytes, 0, 1024, Swizzle::k128),
                      t > 0 || step > 0);
    }
    simt::wgmma_commit();
    // The tile before this one has been read when at most one group is under way.
    if (fault == 3) {
      if (threadIdx.x % 32 == 0) simt::mbarrier_arrive(empty + s);
    } else {
      simt::wgmma_wait<1>();
      if (t > 0 && threadIdx.x % 32 == 0) simt::mbarrier_arrive(empty + (t - 1) % kStages);
    }
  }
  simt::wgmma_wait<0>();
  simt::wgmma_fence_registers(acc);
  const uint32_t warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
#pragma unroll
  for (uint32_t i = 0; i < kN / 2; ++i) {
    d[(warp * 16 + g + 8 * (i % 4 / 2)) * kN + i / 4 * 8 + 2 * c + i % 2] = acc[i];
  }
}

}  // namespace

void add_warpgroup_cases(simt_test::Cases& out) {
  add_product<64, Swizzle::k128, false, Swizzle::k128, false>(out,
                                                              "both K-major, 128-byte swizzle");
  add_product<96, Swizzle::k64, false, Swizzle::k64, false>(out, "both K-major, 64-byte swizzle");
  add_product<40, Swizzle::k32, false, Swizzle::k32, false>(
      out, "both K-major, 32-byte swizzle, 40 columns");
  add_product<16, Swizzle::kNone, false, Swizzle::kNone, false>(out, "both K-major, no swizzle");
  add_product<128, Swizzle::k128, true, Swizzle::k128, true>(out,
                                                             "both MN-major, 128-byte swizzle");
  add_product<64, Swizzle::k64, true, Swizzle::k64, true>(out, "both MN-major, 64-byte swizzle");
  add_product<32, Swizzle::k32, true, Swizzle::k32, true>(out, "both MN-major, 32-byte swizzle");
  add_product<24, Swizzle::kNone, true, Swizzle::kNone, true>(out, "both MN-major, no swizzle");
  add_product<256, Swizzle::k128, false, Swizzle::k128, true>(out,
                                                              "A K-major, B MN-major, 256 columns");
  add_product<64, Swizzle::kNone, false, Swizzle::k128, true, true>(out,
                                                                    "A in registers, B MN-major");
  add_product<8, Swizzle::kNone, false, Swizzle::k128, false, true>(out,
                                                                    "A in registers, 8 columns");
  {
    const int tiles = 5, k = tiles * 64;
    const auto a = values(static_cast<size_t>(kM) * k, 26),
               b = values(static_cast<size_t>(k) * kN, 27);
    out.push_back(
        {"wgmma fed by tensor copies",
         90,
         1e-5f,
         product(a, b, kM, kN, k),
         [=](int fault) {
           DeviceArray<bf16> ad(to_bf16(a)), bd(to_bf16(transposed(b, k, kN)));
           auto d = results(kM * kN);
           const auto am =
               simt::make_tensor_map<bf16>(ad.get(), {k, kM}, {k * 2}, {64, kM}, Swizzle::k128);
           const auto bm =
               simt::make_tensor_map<bf16>(bd.get(), {k, kN}, {k * 2}, {64, kN}, Swizzle::k128);
           simt::launch(fed_product, {.block = 160, .shared = 1024 + kStages * 2 * kM * 128}, am,
                        bm, d.get(), tiles, fault);
           return d.host();
         },
         {"buffer refilled without waiting", "wait for the data removed",
          "buffer given back before the product has read it"}});
  }
}

}  // namespace quintet::QT_GPU
