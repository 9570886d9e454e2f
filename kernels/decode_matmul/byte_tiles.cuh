#pragma once
// Products of more rows than kMostSkinnyRows with weights in a byte; private to this folder.

#include "kernels/decode_matmul/skinny.cuh"

namespace quintet::QT_GPU {

/// As skinny_matmul_gpu, of a product that takes_tiles(). With a norm, x * norm is rounded to bfloat16.
void byte_tiles(const SkinnyMatmul& product, Stream stream);

}  // namespace quintet::QT_GPU
