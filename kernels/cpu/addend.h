#pragma once
// What an op adds a result to (`&` in runtime/op/ops.def), for kernels that go on from there.

#include <algorithm>

#include "kernels/cpu/parallel.h"
#include "kernels/kernel.h"

namespace quintet::cpu {

/// Puts what result number i, float32, is added to where it will be; the op has so many operands besides. The factor of
/// what is there then: of a product, its beta.
inline float copy_addend(Views in, size_t operands, Views out, size_t i) {
  if (operands + i >= in.size() || in[operands + i].absent()) return 0;
  const View& result = out[i];
  const auto* from = in[operands + i].data<float>();
  auto* to = result.data<float>();
  if (from != to)
    parallel_for(result.elements(), 1 << 14, [&](int64_t begin, int64_t end) {
      std::copy(from + begin, from + end, to + begin);
    });
  return 1;
}

}  // namespace quintet::cpu
