#pragma once
// What an op adds a result to (`&` in runtime/op/ops.def), for kernels that go on from there.

#include <algorithm>

#include "kernels/cpu/parallel.h"
#include "kernels/kernel.h"

namespace quintet::cpu {

/// Puts in[at], if the op has that operand, where the result will be, float32. The factor of what is there then: of a
/// product, its beta.
inline float copy_addend(Views in, size_t at, const View& result) {
  if (at >= in.size() || in[at].absent()) return 0;
  const auto* from = in[at].data<float>();
  auto* to = result.data<float>();
  if (from != to)
    parallel_for(result.elements(), 1 << 14, [&](int64_t begin, int64_t end) {
      std::copy(from + begin, from + end, to + begin);
    });
  return 1;
}

}  // namespace quintet::cpu
