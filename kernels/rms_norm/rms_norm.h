#pragma once
// Root-mean-square norm. Source: arXiv:1910.07467; T5X's layers.LayerNorm.
//
//   rms_norm       x [..., e], scale [e]             ->  y [..., e]
//                  y = x r scale,  r = 1 / sqrt(mean over e of x^2 + eps)
//   rms_norm_grad  x [..., e], scale [e], dy [..., e] ->  dx [..., e], dscale [e]
//                  g = dy scale;  dx = r (g - x r^2 mean(g x));  dscale = sum over rows of dy x r
//
// Attribute: eps (double, default 1e-6). Statistics and sums in float32; float32 only. dscale is
// summed in an order that depends on shapes, thread count and the kind of dropout alone, and may be added to what is there
// (`&` in runtime/op/ops.def).
//
// A residual sum and the norm after it, in one pass over memory:
//   add_rms_norm       x [..., e], y [..., e], scale [e]  ->  x_new [..., e], out [..., e]
//                      x_new = x + dropout(y);  out = rms_norm(x_new, scale), of x_new as it is stored
//   add_rms_norm_grad  x_new, scale, dout [..., e], dx_new [..., e]  ->  dx [..., e], dy?, dscale [e]
//                      dx = dx_new + gradient of the norm;  dy = dropout(dx), absent without dropout
// Attributes: eps and, if y is dropped out, those of dropout.h. On the CPU results equal those of
// add, dropout and rms_norm one after the other, bit for bit.
//
// Where FP8 layers alone read a norm, and their scale is known (kernels/fp8/fp8.h), it leaves as their operand, the bytes
// of E4M3 that a cast would make of it, and the same transposed, [e, rows], for the gradients of weights:
//   rms_norm_fp8       x, scale, scaling [layers, 20]     ->  y8 [..., e], y8_t?
//   add_rms_norm_fp8   x, y, scale, scaling               ->  x_new, y8, y8_t?
// with the attribute `layer`, whose amax of x grows. Gradients are those of the ops above.
//
// Where e is sharded over ranks the norm and its gradient run in two phases; x, scale and dy are then
// blocks:
//   rms_norm_squares     x -> sum of x^2 [...]            rms_norm_apply       x, scale, squares -> y
//   rms_norm_products    x, scale, dy -> sum of x^2, sum of g x
//   rms_norm_grad_apply  x, scale, dy, squares, products -> dx, dscale
// with sums over the block in the first phase, over all of e in the second.

#include "kernels/kernel.h"

namespace quintet {

void rms_norm_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void rms_norm_grad_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void add_rms_norm_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void add_rms_norm_grad_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void rms_norm_fp8_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void add_rms_norm_fp8_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void rms_norm_squares_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void rms_norm_apply_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void rms_norm_products_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void rms_norm_grad_apply_cpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet
