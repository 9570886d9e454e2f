#pragma once
// Matrix products of packed rows, each with its expert's matrix: as many rows for an expert as it
// has, none padded. Rows offsets[x] to offsets[x + 1] of the b n packed rows are expert x's; offsets
// [b, s] is int32 in device memory, and its first s = experts + 1 numbers count (route.h). Unused rows
// of operands are not read as numbers; in results they are zero.
//
//   experts_in       x [b, n, e], offsets, wi_0 [x, e, f], wi_1 [x, e, f]?
//                    ->  y [b, n, f], h0 [b, n, f]?, h1 [b, n, f]?
//                    h0 = x wi_0, h1 = x wi_1; y = act0(h0) act1(h1), or act0(h0) without wi_1
//   experts_in_grad  x, offsets, wi_0, wi_1?, h0, h1?, dy [b, n, f]
//                    ->  dx [b, n, e], dwi_0 [x, e, f], dwi_1 [x, e, f]?
//   grouped_matmul         x [b, n, e], offsets, w [x, e, f]  ->  y [b, n, f]     y = x w
//   grouped_matmul_t       y [b, n, f], offsets, w [x, e, f]  ->  x [b, n, e]     x = y w^T
//   grouped_matmul_grad_w  x [b, n, e], offsets, y [b, n, f]  ->  dw [x, e, f]    dw = x^T y
//                          an expert without rows: 0
//                          gradients of weights may be added to what is there (`&` in runtime/op/ops.def)
//   experts_dropout  x [b, n, f], offsets  ->  y [b, n, f]    expert x's rows times its mask:
//                    mask[j] = 0 or 1 / (1 - rate), drawn for element x f_global + j (dropout.h), or with attribute
//                    fold for element j by a key of the expert's own: fold_in(split_at(key, x), fold), as flaxformer's
//
// The rows and matrices may be those of a range of all experts, x counting within it: the origin of
// offsets' last axis, s elements for each range before it, says which.
//
// Attributes: act0, act1 of experts_in and its gradient (mlp.h); experts_dropout: rate, key0, key1, fold;
// grouped_matmul_grad_w: x, the number of experts.
// On the CPU float32; sums are in float32, their order depends on shapes and thread count alone.

#include "kernels/kernel.h"

namespace quintet {

/// Number of a block's first expert; all ranges are as large.
inline int64_t first_expert_of(const View& offsets) {
  return offsets.origin[1] / offsets.depth() * (offsets.depth() - 1);
}

void experts_in_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void experts_in_grad_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void grouped_matmul_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void grouped_matmul_t_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void grouped_matmul_grad_w_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void experts_dropout_cpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet
