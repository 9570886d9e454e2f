#pragma once
// The products of small_batch_matmul_gpu.h with the matrices of experts.

#include "kernels/decode_matmul/small_batch.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU {

/// At most kMaxSmallBatchRows rows; weights are not transposed; what joins has no activation and leaves
/// `dtype`.
void small_batch_experts(const SmallBatchMatmul& product, Stream stream);

}  // namespace quintet::QT_GPU
