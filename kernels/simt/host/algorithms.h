#pragma once
// Device-wide algorithms that libraries have: CUB on the device, the standard library in the
// emulator.

#include <cstdint>

#include "kernels/kernel.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU::simt {

/// Sorts n pairs by key, ascending and stable; keys are in [0, 2^bits). All arrays hold n numbers
/// in device memory and do not overlap. Deterministic.
struct SortPairs {
  const int32_t *keys, *values;
  int32_t *sorted_keys, *sorted_values;
  int64_t n;
  int bits = 31;
};
void sort_pairs(const SortPairs& pairs, Stream stream);

/// sums[i] = x[0] + ... + x[i - 1], for i < n; in device memory, apart from each other.
void exclusive_sum(const int32_t* x, int32_t* sums, int64_t n, Stream stream);

}  // namespace quintet::QT_GPU::simt
