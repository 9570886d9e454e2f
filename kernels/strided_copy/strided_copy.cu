#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/strided_copy/strided_copy_gpu.h"
#include "kernels/vectors/vectors.cuh"

namespace quintet::QT_GPU {
namespace {

constexpr int kUnitsAThread = 4;

template <int kBytes>
QT_DEVICE void copy_unit(std::byte* to, const std::byte* from) {
  if constexpr (kBytes >= 4) {
    uint32_t words[kBytes / 4];
    load_words(from, words);
    store_words(to, words);
  } else {
    __builtin_memcpy(__builtin_assume_aligned(to, kBytes), __builtin_assume_aligned(from, kBytes),
                     kBytes);
  }
}

/// Neighbouring threads take neighbouring units of kBytes. Their number fits 32 bits, whose division
/// costs a fraction of that of 64.
template <int kBytes>
__global__ void __launch_bounds__(kBlockThreads)
    strided_copy_kernel(const __grid_constant__ StridedCopy p) {
  const auto units = static_cast<uint32_t>(p.bytes / kBytes);
  const auto runs = static_cast<uint32_t>(p.counts[1]);
  const auto all = static_cast<uint32_t>(p.counts[0]) * runs * units;
  const uint32_t threads = gridDim.x * blockDim.x;
  for (uint32_t at = blockIdx.x * blockDim.x + threadIdx.x; at < all; at += threads) {
    const uint32_t run = at / units;
    const int64_t i = run / runs, j = run % runs, in_run = int64_t{at % units} * kBytes;
    copy_unit<kBytes>(
        static_cast<std::byte*>(p.to) + i * p.to_strides[0] + j * p.to_strides[1] + in_run,
        static_cast<const std::byte*>(p.from) + i * p.from_strides[0] + j * p.from_strides[1] +
            in_run);
  }
}

template <int kBytes>
void copy_in_units(const StridedCopy& copy, Stream stream) {
  const int64_t all = copy.counts[0] * copy.counts[1] * (copy.bytes / kBytes);
  if (all > std::numeric_limits<int32_t>::max()) {  // halves, of which each has fewer
    const size_t dim = copy.counts[0] > 1 ? 0 : 1;
    QT_ASSERT(copy.counts[dim] > 1);
    StridedCopy low = copy, high = copy;
    low.counts[dim] /= 2;
    high.counts[dim] -= low.counts[dim];
    high.to = static_cast<std::byte*>(copy.to) + low.counts[dim] * copy.to_strides[dim];
    high.from = static_cast<const std::byte*>(copy.from) + low.counts[dim] * copy.from_strides[dim];
    copy_in_units<kBytes>(low, stream);
    copy_in_units<kBytes>(high, stream);
    return;
  }
  simt::launch(strided_copy_kernel<kBytes>,
               {.grid = blocks_for((all + kUnitsAThread - 1) / kUnitsAThread),
                .block = kBlockThreads,
                .stream = stream},
               copy);
}

}  // namespace

void copy_strided_gpu(const StridedCopy& copy, Stream stream) {
  if (copy.bytes * copy.counts[0] * copy.counts[1] == 0) return;
  auto bits = reinterpret_cast<uintptr_t>(copy.to) | reinterpret_cast<uintptr_t>(copy.from) |
              static_cast<uintptr_t>(copy.bytes);
  for (size_t i = 0; i < 2; ++i)
    if (copy.counts[i] > 1)
      bits |= static_cast<uintptr_t>(copy.to_strides[i] | copy.from_strides[i]);
  switch (
      std::min<uintptr_t>(bits & -bits, 16)) {  // the largest unit that everything is aligned to
    case 16:
      return copy_in_units<16>(copy, stream);
    case 8:
      return copy_in_units<8>(copy, stream);
    case 4:
      return copy_in_units<4>(copy, stream);
    case 2:
      return copy_in_units<2>(copy, stream);
    default:
      return copy_in_units<1>(copy, stream);
  }
}

}  // namespace quintet::QT_GPU
