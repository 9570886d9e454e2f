#pragma once
// Any optimizer for parameters on a GPU: gradients are copied to the host, updated there, and the
// parameters copied back. For chains that have no device kernel; costs 8 bytes a parameter over
// the bus each step.

#include "runtime/optim/optimizer.h"

namespace quintet {

/// `optimizer` then sees parameters and gradients in ordinary memory; its state lies there.
OptimizerPtr host_mirror(OptimizerPtr optimizer);

}  // namespace quintet
