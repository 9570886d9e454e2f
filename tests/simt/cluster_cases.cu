// Clusters: distributed shared memory, multicast, remote barriers. Cooperative grids.

#include "kernels/simt/resident.cuh"
#include "tests/simt/device_array.cuh"

namespace quintet::QT_GPU {
namespace {

/// out[block] = values of the next block of the cluster.
__global__ void neighbours(const float* x, float* out, int fault) {
  auto mine = simt::shared<float>(0, 64);
  const int i = static_cast<int>(threadIdx.x);
  const uint32_t rank = simt::cluster_rank(), size = simt::cluster_size();
  mine[i] = x[blockIdx.x * 64 + i];
  if (fault != 1) simt::cluster_sync();
  const auto theirs = simt::map_cluster(mine, (rank + 1) % size);
  float sum = theirs[63 - i];
  // A second round: each block adds to the memory of the one before it.
  simt::cluster_sync();
  theirs[i] += 1.0f;
  simt::cluster_sync();
  sum += mine[i];
  if (fault == 2) {
    if (rank != 1) return;
    for (int r = 0; r < 3; ++r) __nanosleep(100);
    sum += simt::map_cluster(mine, 0)[i] * 0.0f;
  }
  out[blockIdx.x * 64 + i] = sum;
}

/// Both blocks of a cluster load half of a tile and send it to both.
__global__ void multicast(const __grid_constant__ simt::TensorMap map, float* out, int fault) {
  auto bar = simt::shared<uint64_t>(0, 1);
  auto tile = simt::shared<float>(1024, 16 * 32);
  const uint32_t rank = simt::cluster_rank();
  if (threadIdx.x == 0) {
    simt::mbarrier_init(bar, 1);
    simt::fence_barrier_init();
  }
  if (fault != 1) simt::cluster_sync();
  if (threadIdx.x == 0) {
    simt::mbarrier_arrive_expect_tx(bar, fault == 2 ? 1024 : 2048);
    simt::tma_load_multicast_2d(tile + rank * 256, map, bar, 3, 0, static_cast<int>(rank) * 8);
  }
  __syncthreads();
  simt::mbarrier_wait(bar, 0);
  for (int i = static_cast<int>(threadIdx.x); i < 512; i += 64) {
    out[blockIdx.x * 512 + i] = tile[i];
  }
  simt::cluster_sync();
}

/// Rank 0 waits until the threads of all other blocks have left a value in its memory.
__global__ void gather(float* out, int fault) {
  auto bar = simt::shared<uint64_t>(0, 1);
  auto box = simt::shared<float>(1024, 32 * 4);
  const uint32_t rank = simt::cluster_rank();
  if (threadIdx.x == 0) {
    simt::mbarrier_init(bar, 32 * simt::cluster_size());
    simt::fence_barrier_init();
  }
  simt::cluster_sync();
  simt::map_cluster(box, 0)[rank * 32 + threadIdx.x] = static_cast<float>(rank * 100 + threadIdx.x);
  if (fault != 1 || rank != 3) simt::mbarrier_arrive_cluster(bar, 0);
  if (rank == 0) {
    if (fault != 2) simt::mbarrier_wait_cluster(bar, 0);
    for (uint32_t r = 0; r < 4; ++r) out[r * 32 + threadIdx.x] = box[r * 32 + 31 - threadIdx.x];
  }
  simt::cluster_sync();
}

/// Two sweeps over the array with a barrier of the whole grid between.
__global__ void sweeps(const float* x, float* middle, float* out, int n, int fault) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  for (int sweep = 0; sweep < 3; ++sweep) {
    middle[sweep * n + i] = (sweep == 0 ? x[i] : middle[(sweep - 1) * n + (i + 77) % n]) + 1.0f;
    if (fault == 0)
      simt::grid_sync();
    else if (fault == 1)
      __syncthreads();
    else if (blockIdx.x != 0)
      simt::grid_sync();
  }
  out[i] = middle[2 * n + (i + 77) % n];
}

/// Like sweeps over two arrays by turns, each with a barrier of its own that is waited for a turn later.
__global__ void two_sweeps(const float* x, float* middle, float* out, int n, int fault) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  uint32_t arrivals[2] = {};
  for (int turn = 0; turn < 6; ++turn) {
    const int array = turn % 2, sweep = turn / 2;
    if (sweep > 0 && fault != 1) simt::grid_wait(array, arrivals[array]);
    float* const to = middle + (array * 3 + sweep) * n;
    to[i] = (sweep == 0 ? x[i] * static_cast<float>(1 + array) : (to - n)[(i + 77) % n]) + 1.0f;
    arrivals[array] = simt::grid_arrive(fault == 2 ? 0 : array);
  }
  for (int array = 0; array < 2; ++array)
    if (fault != 3) simt::grid_wait(array, arrivals[array]);
  out[i] = middle[2 * n + (i + 77) % n] + middle[5 * n + (i + 77) % n];
}

}  // namespace

void add_cluster_cases(simt_test::Cases& out) {
  {
    const auto x = values(8 * 64, 28);
    std::vector<float> expected;
    for (int b = 0; b < 8; ++b) {
      for (int i = 0; i < 64; ++i)
        expected.push_back(x[(b / 4 * 4 + (b + 1) % 4) * 64 + 63 - i] + x[b * 64 + i] + 1.0f);
    }
    out.push_back({"distributed shared memory",
                   90,
                   0,
                   expected,
                   [x](int fault) {
                     DeviceArray<float> in(x);
                     auto y = results(512);
                     simt::launch(neighbours, {.grid = 8, .block = 64, .shared = 256, .cluster = 4},
                                  in.get(), y.get(), fault);
                     return y.host();
                   },
                   {"cluster barrier removed", "memory of a block that has ended"}});
  }
  {
    const auto x = values(16 * 32, 29);
    std::vector<float> expected = x;
    expected.insert(expected.end(), x.begin(), x.end());
    out.push_back(
        {"multicast",
         90,
         0,
         expected,
         [x](int fault) {
           DeviceArray<float> in(x);
           auto y = results(1024);
           const auto map = simt::make_tensor_map<float>(in.get(), {32, 16}, {128}, {32, 8});
           simt::launch(multicast, {.grid = 2, .block = 64, .shared = 1024 + 2048, .cluster = 2},
                        map, y.get(), fault);
           return y.host();
         },
         {"cluster barrier after mbarrier_init removed", "half of the bytes expected"}});
  }
  {
    std::vector<float> expected;
    for (int r = 0; r < 4; ++r) {
      for (int i = 0; i < 32; ++i) expected.push_back(static_cast<float>(r * 100 + 31 - i));
    }
    out.push_back({"remote arrivals",
                   90,
                   0,
                   expected,
                   [](int fault) {
                     auto y = results(128);
                     simt::launch(gather,
                                  {.grid = 4, .block = 32, .shared = 1024 + 512, .cluster = 4},
                                  y.get(), fault);
                     return y.host();
                   },
                   {"one block's arrivals removed", "wait removed"}});
  }
  {
    const int n = 4 * 96;
    const auto x = values(n, 30);
    std::vector<float> expected(n);
    for (int i = 0; i < n; ++i) expected[i] = x[(i + 3 * 77) % n] + 1.0f + 1.0f + 1.0f;
    out.push_back({"grid barrier",
                   80,
                   0,
                   expected,
                   [=](int fault) {
                     DeviceArray<float> in(x);
                     auto middle = results(3 * n), y = results(n);
                     simt::launch(sweeps, {.grid = 4, .block = 96, .cooperative = true}, in.get(),
                                  middle.get(), y.get(), n, fault);
                     return y.host();
                   },
                   {"only a block's barrier", "one block skips it"}});
    for (int i = 0; i < n; ++i) {
      const float of_first = x[(i + 3 * 77) % n];
      expected[i] = (of_first + 1.0f + 1.0f + 1.0f) + (of_first * 2.0f + 1.0f + 1.0f + 1.0f);
    }
    out.push_back({"two grid barriers",
                   80,
                   0,
                   expected,
                   [=](int fault) {
                     DeviceArray<float> in(x);
                     auto middle = results(6 * n), y = results(n);
                     simt::launch(two_sweeps, {.grid = 4, .block = 96, .cooperative = true},
                                  in.get(), middle.get(), y.get(), n, fault);
                     return y.host();
                   },
                   {"arrived twice without a wait", "one barrier for both", "last waits removed"}});
  }
}

}  // namespace quintet::QT_GPU
