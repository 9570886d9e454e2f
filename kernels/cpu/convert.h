#pragma once
// Arrays of floating point numbers in another type, on all threads.

#include "kernels/cpu/parallel.h"

namespace quintet::cpu {

/// to[i] = from[i], by way of float32; to bfloat16 rounded to nearest even.
template <typename From, typename To>
void convert(const From* from, int64_t n, To* to) {
  parallel_for(n, kGrainElements, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = To(static_cast<float>(from[i]));
  });
}

}  // namespace quintet::cpu
