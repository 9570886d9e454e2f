#include "kernels/simt/host/algorithms.h"
#include "kernels/simt/language.cuh"
#include "runtime/base/check.h"

#ifdef QUINTET_EMULATE

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/simt/emulator/emulator.h"

namespace quintet::emulated::simt {

namespace {
void sort_now(const SortPairs& p) {
  std::vector<int64_t> order(static_cast<size_t>(p.n));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return p.keys[a] < p.keys[b]; });
  for (int64_t i = 0; i < p.n; ++i) {
    const int64_t from = order[static_cast<size_t>(i)];
    QT_ASSERT(p.keys[from] >= 0 && (p.keys[from] >> p.bits) == 0);
    p.sorted_keys[i] = p.keys[from];
    p.sorted_values[i] = p.values[from];
  }
}
}  // namespace

void sort_pairs(const SortPairs& pairs, Stream) {
  emulator::queue_launch([pairs] { sort_now(pairs); });
}

void exclusive_sum(const int32_t* x, int32_t* sums, int64_t n, Stream) {
  emulator::queue_launch([=] { std::exclusive_scan(x, x + n, sums, 0); });
}

}  // namespace quintet::emulated::simt

#else

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

#include "kernels/device.h"
#include "kernels/simt/cuda_check.h"
#include "kernels/simt/host/scratch.h"

namespace quintet::cuda::simt {
namespace {

/// Calls run(workspace, bytes) twice: for the bytes it needs, and with them.
template <typename Run>
void with_workspace(int64_t n, Stream stream, const Run& run) {
  if (n == 0) return;
  QT_ASSERT(n < int64_t{1} << 31);
  const auto checked = [&](void* workspace, size_t& bytes) {
    check_cuda(run(workspace, bytes, static_cast<int>(n), static_cast<cudaStream_t>(stream.handle)),
               "a sort or sum of the whole GPU");
  };
  size_t bytes = 0;
  checked(nullptr, bytes);
  const Scratch workspace(static_cast<int64_t>(bytes), stream);
  checked(workspace.data<void>(), bytes);
  quintet::Device::current().counters().launch();  // one algorithm, of a few kernels
}

}  // namespace

void sort_pairs(const SortPairs& p, Stream stream) {
  with_workspace(p.n, stream, [&](void* workspace, size_t& bytes, int n, cudaStream_t on) {
    return cub::DeviceRadixSort::SortPairs(workspace, bytes, p.keys, p.sorted_keys, p.values,
                                           p.sorted_values, n, 0, p.bits, on);
  });
}

void exclusive_sum(const int32_t* x, int32_t* sums, int64_t n, Stream stream) {
  with_workspace(n, stream, [&](void* workspace, size_t& bytes, int count, cudaStream_t on) {
    return cub::DeviceScan::ExclusiveSum(workspace, bytes, x, sums, count, on);
  });
}

}  // namespace quintet::cuda::simt

#endif
