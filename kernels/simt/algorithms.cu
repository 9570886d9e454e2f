#include "kernels/simt/algorithms.h"
#include "kernels/simt/language.cuh"
#include "runtime/base/check.h"

#ifdef QUINTET_EMULATE

#include <algorithm>
#include <numeric>
#include <vector>

namespace quintet::emulated::simt {

void sort_pairs(const SortPairs& p, Stream) {
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

}  // namespace quintet::emulated::simt

#else

#include <cub/device/device_radix_sort.cuh>

#include "kernels/simt/scratch.h"

namespace quintet::cuda::simt {

void sort_pairs(const SortPairs& p, Stream stream) {
  if (p.n == 0) return;
  QT_ASSERT(p.n < int64_t{1} << 31);
  const auto run = [&](void* room, size_t& bytes) {
    const cudaError_t status = cub::DeviceRadixSort::SortPairs(
        room, bytes, p.keys, p.sorted_keys, p.values, p.sorted_values, static_cast<int>(p.n), 0,
        p.bits, static_cast<cudaStream_t>(stream.handle));
    QT_CHECK_AS(ExitCode::kEnvironment, status == cudaSuccess, "sorting {} numbers on the GPU: {}",
                p.n, cudaGetErrorString(status));
  };
  size_t bytes = 0;
  run(nullptr, bytes);
  const Scratch room(static_cast<int64_t>(bytes), stream);
  run(room.data<void>(), bytes);
}

}  // namespace quintet::cuda::simt

#endif
