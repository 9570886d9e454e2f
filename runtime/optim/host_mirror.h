#pragma once
// --optimizer_offload: an optimizer for parameters on a GPU whose state does not fit beside them. Its state
// lies in the host's memory; each step parameters and gradients are copied into pinned memory, waited for
// once, updated by the CPU's threads, and copied back while the next step begins: 12 bytes a parameter over
// the bus, 10 with bfloat16 gradients.

#include "runtime/optim/optimizer.h"

namespace quintet {

/// `optimizer` then sees parameters and gradients, float32 or bfloat16, in ordinary memory; its state lies there.
OptimizerPtr host_mirror(OptimizerPtr optimizer, DType gradient_dtype);

}  // namespace quintet
