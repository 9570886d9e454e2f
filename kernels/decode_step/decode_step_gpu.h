#pragma once
// All layers of a decoder over 1 to 4 rows in one kernel whose blocks stay (README.md).
//
// Products, sums and attention are float32; what the separate kernels round to the dtype (x, query, key
// and value, what attention finds, the MLP's hidden units) is rounded here too, so results differ by the
// order of sums alone.

#include "kernels/decode_step/decode_step.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU {

/// Bytes of the workspace of such a step on the current device; 0: it takes the separate kernels. It does
/// not where rows, layers or sizes are beyond what the kernel has room for, where parts of `embed` that
/// the blocks of a cluster have, `mlp_dim` or `head_dim` are no multiples of 16 bytes, where a head is
/// no power of two of those, or where the device has no clusters. Pointers, but for alignment, are not looked at.
int64_t decode_step_workspace_gpu(const DecodeStep& step);
void decode_step_gpu(const DecodeStep& step, Stream stream);

}  // namespace quintet::QT_GPU
