#pragma once
// Root-mean-square norm on a GPU: x, y, dy, dx float32 or bfloat16; scale and dscale float32.
// Statistics in float32; dscale is summed in an order that depends on shapes and the device alone.
// The mathematics: rms_norm.h.

#include "kernels/kernel.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU {

void rms_norm_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void rms_norm_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream);

// The phases where rows are sharded over ranks (rms_norm.h); sums are float32.
void rms_norm_squares_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void rms_norm_apply_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void rms_norm_products_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void rms_norm_grad_apply_gpu(Views in, Views out, const Attrs& attrs, Stream stream);

// Results in E4M3: rows a multiple of 16, e one too and at most kMostFp8NormDepth.
void rms_norm_fp8_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void add_rms_norm_fp8_gpu(Views in, Views out, const Attrs& attrs, Stream stream);

// Float32 or bfloat16; dx is rounded once.
void add_rms_norm_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void add_rms_norm_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet::QT_GPU
