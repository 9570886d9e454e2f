#pragma once
// The products of skinny_matmul_gpu.h with the matrices of experts.

#include "kernels/decode_matmul/skinny.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU {

/// At most kMostSkinnyRows rows; weights are not transposed; what joins has no activation and leaves
/// `dtype`.
void skinny_experts(const SkinnyMatmul& product, Stream stream);

}  // namespace quintet::QT_GPU
