// Asynchronous copies: cp.async groups; mbarriers with bulk copies; bulk stores.

#include "tests/simt/device_array.cuh"

namespace quintet::QT_GPU {
namespace {

constexpr int kTile = 256;  // floats, for 64 threads

/// out = 2 x, through two buffers that cp.async fills while the other is read.
__global__ void pipeline(const float* x, float* out, int tiles, int fault) {
  const int i = static_cast<int>(threadIdx.x) * 4;
  const auto buffer = [&](int t) {
    return simt::shared<float>((t % 2) * kTile * sizeof(float), kTile);
  };
  const auto fetch = [&](int t) {
    // The last tile has only half its values: the rest are zeros.
    const bool valid = t + 1 < tiles || i < kTile / 2;
    if (t < tiles) simt::cp_async_16(buffer(t) + i, x + t * kTile + i, valid);
    simt::cp_async_commit();
  };
  fetch(0);
  for (int t = 0; t < tiles; ++t) {
    fetch(t + 1);
    if (fault == 1)
      simt::cp_async_wait<2>();
    else
      simt::cp_async_wait<1>();
    if (fault != 2) __syncthreads();
    for (int j = 0; j < 4; ++j)
      out[t * kTile + j * 64 + static_cast<int>(threadIdx.x)] =
          2.0f * buffer(t)[j * 64 + static_cast<int>(threadIdx.x)];
    if (fault != 3) __syncthreads();
  }
}

__global__ void small_copies(const float* x, float* out) {
  const int i = static_cast<int>(threadIdx.x);
  auto a = simt::shared<float>(0, 64);
  auto b = simt::shared<float>(256, 128);
  simt::cp_async_4(a + i, x + i, i % 3 != 0);
  simt::cp_async_8(b + 2 * i, x + 2 * i);
  simt::cp_async_commit();
  simt::cp_async_wait<0>();
  __syncthreads();
  out[i] = a[63 - i] + b[127 - i];
}

constexpr int kStages = 3;

/// A producer thread fills a ring of buffers by bulk copies; 64 consumers read them. Warp 2
/// produces.
__global__ void ring(const float* x, float* out, int tiles, int fault) {
  auto full = simt::shared<uint64_t>(0, kStages);
  auto empty = simt::shared<uint64_t>(64, kStages);
  const auto buffer = [&](int stage) {
    return simt::shared<float>(1024 + stage * kTile * 4, kTile);
  };
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      simt::mbarrier_init(full + s, 1);
      simt::mbarrier_init(empty + s, 64);
    }
    simt::fence_barrier_init();
  }
  if (fault != 1) __syncthreads();
  if (threadIdx.x >= 64) {
    if (threadIdx.x > 64) return;
    for (int t = 0; t < tiles; ++t) {
      const int s = t % kStages;
      const unsigned parity = static_cast<unsigned>(t / kStages) & 1u;
      if (fault != 2) simt::mbarrier_wait(empty + s, parity ^ 1u);
      simt::mbarrier_arrive_expect_tx(full + s, fault == 3 ? kTile * 4 + 16 : kTile * 4);
      simt::bulk_load(buffer(s), x + t * kTile, kTile * 4, full + s);
    }
    return;
  }
  for (int t = 0; t < tiles; ++t) {
    const int s = t % kStages;
    const unsigned parity = static_cast<unsigned>(t / kStages) & 1u;
    if (fault != 4) simt::mbarrier_wait(full + s, fault == 5 ? parity ^ 1u : parity);
    for (int j = 0; j < 4; ++j)
      out[t * kTile + j * 64 + static_cast<int>(threadIdx.x)] =
          buffer(s)[j * 64 + static_cast<int>(threadIdx.x)] + 1.0f;
    if (fault != 6 || t != 1) simt::mbarrier_arrive(empty + s);
  }
}

/// out[tile] = x[tile] + 1 and sums += x[tile], by bulk stores from one buffer.
__global__ void stores(const float* x, float* out, float* sums, int tiles, int fault) {
  auto buffer = simt::shared<float>(0, 64);
  auto again = simt::shared<float>(256, 64);
  const int i = static_cast<int>(threadIdx.x);
  for (int t = 0; t < tiles; ++t) {
    buffer[i] = x[t * 64 + i] + 1.0f;
    again[i] = x[t * 64 + i];
    if (fault != 1) simt::fence_async_shared();
    if (fault != 2) __syncthreads();
    if (i == 0) {
      simt::bulk_store(out + t * 64, buffer, 256);
      simt::bulk_reduce_add(sums, again, 256);
      simt::tma_store_commit();
      if (fault != 3) simt::tma_store_wait_read<0>();
    }
    __syncthreads();
  }
  if (fault == 4 && i == 0) {
    simt::bulk_store(out, buffer, 256);
    simt::tma_store_commit();
  }
}

}  // namespace

void add_copy_cases(simt_test::Cases& out) {
  {
    const int tiles = 5;
    const auto x = values(tiles * kTile, 7);
    std::vector<float> expected = x;
    for (float& v : expected) v *= 2.0f;
    std::fill(expected.end() - kTile / 2, expected.end(), 0.0f);
    out.push_back({"cp.async in groups",
                   80,
                   0,
                   expected,
                   [x](int fault) {
                     DeviceArray<float> in(x);
                     auto y = results(x.size());
                     simt::launch(pipeline, {.block = 64, .shared = 2 * kTile * 4}, in.get(),
                                  y.get(), 5, fault);
                     return y.host();
                   },
                   {"wait for one group fewer", "barrier after the wait removed",
                    "barrier before the next copy removed"}});
  }
  {
    const auto x = values(128, 8);
    std::vector<float> expected(64);
    for (int i = 0; i < 64; ++i) expected[i] = ((63 - i) % 3 != 0 ? x[63 - i] : 0.0f) + x[127 - i];
    out.push_back({"cp.async of 4 and 8 bytes",
                   80,
                   0,
                   expected,
                   [x](int) {
                     DeviceArray<float> in(x);
                     auto y = results(64);
                     simt::launch(small_copies, {.block = 64, .shared = 256 + 512}, in.get(),
                                  y.get());
                     return y.host();
                   },
                   {}});
  }
  {
    const int tiles = 11;
    const auto x = values(tiles * kTile, 9);
    std::vector<float> expected = x;
    for (float& v : expected) v += 1.0f;
    out.push_back({"mbarriers and bulk copies",
                   90,
                   0,
                   expected,
                   [x](int fault) {
                     DeviceArray<float> in(x);
                     auto y = results(x.size());
                     simt::launch(ring, {.block = 96, .shared = 1024 + kStages * kTile * 4},
                                  in.get(), y.get(), 11, fault);
                     return y.host();
                   },
                   {"barrier after mbarrier_init removed", "buffer refilled without waiting",
                    "too many bytes expected", "wait for the data removed", "wrong parity",
                    "one arrival removed"}});
  }
  {
    const int tiles = 6;
    const auto x = values(tiles * 64, 10);
    std::vector<float> expected = x;
    for (float& v : expected) v += 1.0f;
    for (int i = 0; i < 64; ++i) {
      float sum = 0;
      for (int t = 0; t < tiles; ++t) sum += x[t * 64 + i];
      expected.push_back(sum);
    }
    out.push_back({"bulk stores and reductions",
                   90,
                   0,
                   expected,
                   [x](int fault) {
                     DeviceArray<float> in(x);
                     auto y = results(x.size());
                     DeviceArray<float> sums(std::vector<float>(64, 0.0f));
                     simt::launch(stores, {.block = 64, .shared = 512}, in.get(), y.get(),
                                  sums.get(), 6, fault);
                     auto all = y.host();
                     const auto s = sums.host();
                     all.insert(all.end(), s.begin(), s.end());
                     return all;
                   },
                   {"proxy fence removed", "barrier before the store removed",
                    "wait before overwriting removed", "block ends before the store has read"}});
  }
}

}  // namespace quintet::QT_GPU
