#pragma once
// Matrix products. Accumulation in float32; no attributes. Sums run in an order that depends on the
// shapes and the thread count alone. Results may be added to what is there
// (`&` in runtime/op/ops.def).
//
//   matmul         x [..., k], w [k, n]   ->  y [..., n]    y = x w
//   matmul_t       x [..., k], w [n, k]   ->  y [..., n]    y = x w^T
//   matmul_grad_w  x [..., k], dy [..., n] -> dw [k, n]     dw = x^T dy, summed over all leading axes
//
// Gradients: of matmul, dx = matmul_t(dy, w) and dw = matmul_grad_w(x, dy); of matmul_t,
// dx = matmul(dy, w) and dw = matmul_grad_w(dy, x).
// Sizes of 0 are legal (an empty sum is 0). float32 only; other dtypes are usage errors.

#include "kernels/kernel.h"

namespace quintet {

void matmul_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void matmul_t_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void matmul_grad_w_cpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet
