#pragma once
// The signature of every kernel. Kernels compute on raw views; they know nothing of tensors, tapes,
// meshes or allocation. Operands and results follow the op's rule in op/ops.def, in order; an
// optional one that is absent has View::absent(). Outputs are allocated and uninitialised.

#include <span>

#include "runtime/base/attrs.h"
#include "runtime/base/view.h"

namespace quintet {

/// Where a kernel runs: nullptr on the CPU, a CUDA stream on a GPU.
struct Stream {
  void* handle = nullptr;
};

using Views = std::span<const View>;
using Kernel = void (*)(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet
