#pragma once
// --optimizer_offload: an optimizer for parameters on a GPU whose state does not fit beside them. Its state
// lies in the host's memory; each step gradients are copied into pinned memory, waited for once, and parameters
// updated by the CPU's threads and copied back while the next step begins. Masters of which the device computes with a
// bfloat16 copy may lie in the host's memory alone: 6 bytes a parameter over the bus then, 4 with bfloat16 gradients;
// others come and go, 12 or 10 bytes.

#include "runtime/optim/optimizer.h"

namespace quintet {

struct HostMirrorOptions {
  DType gradient_dtype = DType::f32;
  bool masters_on_host = false;  // of parameters with a copy
};
/// `optimizer` then sees parameters and gradients in ordinary memory; its state lies there.
OptimizerPtr host_mirror(OptimizerPtr optimizer, const HostMirrorOptions& options);

}  // namespace quintet
