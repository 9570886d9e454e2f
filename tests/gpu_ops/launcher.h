#pragma once
// Runs device kernels on the buffers of a case: everything, guard bytes included, is copied to the
// device, the kernel runs there, everything is copied back.

#include "runtime/op/op.h"
#include "tests/ops/buffers.h"

namespace quintet::testing {

/// The op whose CPU kernel this is; nullptr if it is none of ops.def.
const Op* op_of(Kernel cpu);

/// Calls `op` on the current device, which is not the CPU. Inputs come back too: a kernel that
/// changes one is seen. An operand may be a result too.
void launch_on_device(const Op& op, std::span<Buffer* const> in, std::span<Buffer* const> out,
                      const Attrs& attrs);

}  // namespace quintet::testing
