#pragma once
// Products of more rows than kMaxColumnRows on tensor cores; private to this folder.

#include "kernels/decode_matmul/small_batch.cuh"

namespace quintet::QT_GPU {

/// As small_batch_matmul_gpu, of a product that takes_tiles(). With a norm, x * norm is rounded to bfloat16.
void small_batch_tiles(const SmallBatchMatmul& product, Stream stream);

}  // namespace quintet::QT_GPU
