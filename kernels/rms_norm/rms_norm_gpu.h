#pragma once
// Root-mean-square norm on a GPU: x, y, dy, dx float32 or bfloat16; scale and dscale float32.
// Statistics in float32; dscale is summed in an order that depends on shapes and the device alone.
// The mathematics: rms_norm.h.

#include "kernels/kernel.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU {

void rms_norm_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void rms_norm_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream);

// The phases where rows are cut over ranks (rms_norm.h); sums are float32.
void rms_norm_squares_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void rms_norm_apply_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void rms_norm_products_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void rms_norm_grad_apply_gpu(Views in, Views out, const Attrs& attrs, Stream stream);

/// A residual sum and the norm after it in one pass over memory:
///   x [..., e], y [..., e], scale [e]  ->  x_new = x + dropout(y), out = rms_norm(x_new, scale)
/// Attributes of rms_norm and, if y is dropped out, of dropout (rate, key0, key1, broadcast_dim).
void add_rms_norm_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
/// Its gradient, with the same attributes:
///   x_new, scale, dout, dx_new [..., e]  ->  dx, dy?, dscale [e]
///   dx = dx_new + gradient of the norm; dy = dropout(dx), absent when there was no dropout (dy =
///   dx)
void add_rms_norm_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet::QT_GPU
