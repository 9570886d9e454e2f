// Blocks: shared memory, barriers, atomics.

#include "tests/simt/device_array.cuh"

namespace quintet::QT_GPU {
namespace {

/// out[block, i] = x[n - 1 - i] + i.
__global__ void reverse(const float* x, float* out, int n, int fault) {
  auto tile = simt::shared<float>(0, n);
  const int i = static_cast<int>(threadIdx.x);
  tile[i] = x[i];
  if (fault != 1) __syncthreads();
  out[blockIdx.x * n + i] = tile[fault == 2 ? n - i : n - 1 - i] + static_cast<float>(i);
}

/// Neighbours within a warp exchange through shared memory.
__global__ void rotate(const float* x, float* out, int fault) {
  auto tile = simt::shared<float>(0, blockDim.x);
  const unsigned i = threadIdx.x;
  tile[i] = x[i];
  if (fault != 1) __syncwarp();
  out[i] = tile[(i & ~31u) | ((i + 1) & 31u)];
}

/// An inclusive sum over the block, in place: log2(n) rounds with a barrier on both sides of the
/// write.
__global__ void scan(const float* x, float* out, int fault) {
  auto sums = simt::shared<float>(0, blockDim.x);
  const unsigned i = threadIdx.x;
  sums[i] = x[i];
  __syncthreads();
  for (unsigned step = 1; step < blockDim.x; step *= 2) {
    const float left = i >= step ? sums[i - step] : 0.0f;
    if (fault != 1) __syncthreads();
    sums[i] += left;
    if (fault != 2) __syncthreads();
  }
  out[i] = sums[i];
}

/// Not every thread reaches the barrier.
__global__ void meet(float* out, int fault) {
  if (fault == 1 && threadIdx.x >= 96) return;
  if (fault == 2 && threadIdx.x % 2 == 0) {
    __syncwarp();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1;
}

/// Two warps make what two others use, one barrier for each direction.
__global__ void hand_over(float* out, int rounds, int fault) {
  auto box = simt::shared<float>(0, 64);
  const unsigned i = threadIdx.x % 64;
  if (threadIdx.x < 64) {
    for (int r = 0; r < rounds; ++r) {
      if (r > 0 && fault != 1) simt::named_barrier_sync(2, 128);
      box[i] = static_cast<float>(r * 100 + static_cast<int>(i));
      __threadfence_block();
      if (fault != 2 || r != 1) simt::named_barrier_arrive(1, fault == 3 ? 64 : 128);
    }
  } else {
    float sum = 0;
    for (int r = 0; r < rounds; ++r) {
      simt::named_barrier_sync(1, 128);
      sum += box[63 - i];
      if (fault != 1 && r + 1 < rounds) simt::named_barrier_arrive(2, 128);
    }
    out[i] = sum;
  }
}

__global__ void atomics(int* counts, unsigned* bits, float* out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  atomicAdd(&counts[0], i);
  atomicMax(&counts[1], i);
  atomicMin(&counts[2], -i);
  atomicOr(&bits[0], 1u << (i % 32));
  atomicCAS(&counts[3], 0, 7);
  const int old = atomicAdd(&counts[4], 1);
  atomicAdd(&out[0], old >= 0 ? 1.0f : 0.0f);
}

/// The last block to finish sums what all have written.
__global__ void last_block(const float* x, float* partial, int* done, float* out) {
  auto total = simt::shared<float>(0, 1);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = x[blockIdx.x];
    __threadfence();
    total[0] = atomicAdd(done, 1) == static_cast<int>(gridDim.x) - 1 ? 1.0f : 0.0f;
  }
  __syncthreads();
  if (total[0] != 0.0f && threadIdx.x == 0) {
    float sum = 0;
    for (unsigned b = 0; b < gridDim.x; ++b) sum += partial[b];
    out[0] = sum;
  }
}

__global__ void indices(float* out) {
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] =
      static_cast<float>(__syncthreads_count(static_cast<int>(thread % 3 == 0)) * 10000 +
                         static_cast<int>(block * 100 + thread));
}

}  // namespace

void add_block_cases(simt_test::Cases& out) {
  {
    const auto x = values(256, 1);
    std::vector<float> expected;
    for (int b = 0; b < 2; ++b) {
      for (int i = 0; i < 256; ++i) expected.push_back(x[255 - i] + static_cast<float>(i));
    }
    out.push_back({"shared memory and __syncthreads",
                   80,
                   0,
                   expected,
                   [x](int fault) {
                     DeviceArray<float> in(x);
                     auto y = results(512);
                     simt::launch(reverse,
                                  {.grid = 2, .block = 256, .shared = 1024, .name = "reverse"},
                                  in.get(), y.get(), 256, fault);
                     return y.host();
                   },
                   {"barrier removed", "index out of bounds"}});
  }
  {
    const auto x = values(64, 2);
    std::vector<float> expected;
    for (unsigned i = 0; i < 64; ++i) expected.push_back(x[(i & ~31u) | ((i + 1) & 31u)]);
    out.push_back({"__syncwarp",
                   80,
                   0,
                   expected,
                   [x](int fault) {
                     DeviceArray<float> in(x);
                     auto y = results(64);
                     simt::launch(rotate, {.block = 64, .shared = 256}, in.get(), y.get(), fault);
                     return y.host();
                   },
                   {"__syncwarp removed"}});
  }
  {
    const auto x = values(128, 3);
    std::vector<float> expected;
    float sum = 0;
    for (const float v : x) expected.push_back(sum += v);
    out.push_back({"scan in shared memory",
                   80,
                   0,
                   expected,
                   [x](int fault) {
                     DeviceArray<float> in(x);
                     auto y = results(128);
                     simt::launch(scan, {.block = 128, .shared = 512}, in.get(), y.get(), fault);
                     return y.host();
                   },
                   {"barrier after reading removed", "barrier after writing removed"}});
  }
  out.push_back({"a barrier that all reach",
                 80,
                 0,
                 std::vector<float>(128, 1.0f),
                 [](int fault) {
                   auto y = results(128);
                   simt::launch(meet, {.block = 128}, y.get(), fault);
                   return y.host();
                 },
                 {"threads that ended before", "threads at another barrier"}});
  {
    std::vector<float> expected;
    for (int i = 0; i < 64; ++i) expected.push_back(static_cast<float>(600 + 4 * (63 - i)));
    out.push_back(
        {"named barriers",
         80,
         0,
         expected,
         [](int fault) {
           auto y = results(64);
           simt::launch(hand_over, {.block = 128, .shared = 256}, y.get(), 4, fault);
           return y.host();
         },
         {"box reused without waiting", "one arrival removed", "wrong number of threads"}});
  }
  out.push_back({"atomics",
                 80,
                 0,
                 {static_cast<float>(255 * 128), 255, -255, 7, 256, 65535, 65535, 256},
                 [](int) {
                   DeviceArray<int> counts(std::vector<int>(8, 0));
                   DeviceArray<unsigned> bits(std::vector<unsigned>(1, 0));
                   DeviceArray<float> y(std::vector<float>(1, 0.0f));
                   simt::launch(atomics, {.grid = 2, .block = 128}, counts.get(), bits.get(),
                                y.get());
                   const auto c = counts.host();
                   const auto b = bits.host();
                   return std::vector<float>{
                       static_cast<float>(c[0]),           static_cast<float>(c[1]),
                       static_cast<float>(c[2]),           static_cast<float>(c[3]),
                       static_cast<float>(c[4]),           static_cast<float>(b[0] >> 16),
                       static_cast<float>(b[0] & 0xffffu), y.host()[0]};
                 },
                 {}});
  {
    const auto x = values(20, 4);
    float sum = 0;
    for (const float v : x) sum += v;
    out.push_back({"last block",
                   80,
                   0,
                   {sum},
                   [x](int) {
                     DeviceArray<float> in(x);
                     DeviceArray<int> done(std::vector<int>(1, 0));
                     auto partial = results(20);
                     auto y = results(1);
                     simt::launch(last_block, {.grid = 20, .block = 64, .shared = 4}, in.get(),
                                  partial.get(), done.get(), y.get());
                     return y.host();
                   },
                   {}});
  }
  {
    std::vector<float> expected;
    for (int b = 0; b < 2 * 3 * 2; ++b) {
      for (int t = 0; t < 30; ++t) expected.push_back(static_cast<float>(100000 + b * 100 + t));
    }
    out.push_back({"indices and __syncthreads_count",
                   80,
                   0,
                   expected,
                   [](int) {
                     auto y = results(360);
                     simt::launch(indices, {.grid = dim3(2, 3, 2), .block = dim3(5, 2, 3)},
                                  y.get());
                     return y.host();
                   },
                   {}});
  }
}

}  // namespace quintet::QT_GPU
