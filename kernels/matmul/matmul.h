#pragma once
// Matrix products. Accumulation in float32; no attributes. Sums run in an order that depends on the
// shapes and the thread count alone. Results may be added to what is there
// (`&` in runtime/op/ops.def).
//
//   matmul         x [..., k], w [k, n]   ->  y [..., n]    y = x w
//   matmul_t       x [..., k], w [n, k]   ->  y [..., n]    y = x w^T
//   matmul_grad_w  x [..., k], dy [..., n] -> dw [k, n]     dw = x^T dy, summed over all leading axes
//
// Of two or three w that share x (w_2, y_2 and so on may be absent):
//
//   batched_matmul         x, w_i     ->  y_i     y_i = x w_i
//   batched_matmul_grad_x  w_i, dy_i  ->  dx      dx = sum over i of dy_i w_i^T, from the last on
//   batched_matmul_grad_w  x, dy_i    ->  dw_i    dw_i = x^T dy_i
//
// On a GPU the first and the third are one product of a batch, where w_i and y_i, or dy_i, dw_i and what these are added to,
// lie at equal distances (Memory::allocate_side_by_side); else, and on a CPU, one product each. dx is one product each,
// which adds to those before.
//
// Gradients: of matmul, dx = matmul_t(dy, w) and dw = matmul_grad_w(x, dy); of matmul_t,
// dx = matmul(dy, w) and dw = matmul_grad_w(dy, x).
// Sizes of 0 are legal (an empty sum is 0). float32 only; other dtypes are usage errors.

#include "kernels/kernel.h"

namespace quintet {

void matmul_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void matmul_t_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void matmul_grad_w_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void batched_matmul_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void batched_matmul_grad_x_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void batched_matmul_grad_w_cpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet
