#pragma once
// Matrix products of few rows on a GPU, as generation has them: bound by reading the weights, which
// happens once for each 8 rows, with what stands before and after them in a decoder's layer.
//
//   h = x, or rms_norm(x, norm)              (rms_norm.h)
//   y = act0(h weights) [* act1(h gate)]     (mlp.h)
//   out = scale y [+ residual]
//
// With experts (small_batch.h) weights are those of each row's experts, grouped by expert
// (small_batch_experts.cu).
//
// Products and sums are float32 and nothing between x and out is rounded. Each output is the work
// of one block, whose warps share k: the order of the sums depends on shapes and dtype alone.
// Weights of one matrix are read before the kernel before this one has ended (kernels/simt/dependent.cuh): it
// must not write them. Weights in a byte become floats exactly and their column's scale is multiplied
// with the sum. Any sizes; reads of 16 bytes (of such weights: 8) where n (transposed: k) and the
// weights' address allow them. Of bfloat16 x more than kMaxColumnRows run on tensor cores (tiles.cu), which
// take x * norm rounded to bfloat16.

#include "kernels/decode_matmul/small_batch.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU {

void small_batch_matmul_gpu(const SmallBatchMatmul& product, Stream stream);

}  // namespace quintet::QT_GPU
