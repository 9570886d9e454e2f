#pragma once
// Tokens to packed rows and back. Packed rows [b, n, e] are b n rows sorted by expert; those past
// the last expert's are unused and zero. rows [b, l, k] and choices [b, n] are route.h's, numbers within
// this block, each the inverse of the other: a kernel reads whichever suits it, the gradient needs both.
//
//   dispatch  x [b, l, e], rows, choices, gates [b, l, k]?  ->  y [b, n, e]
//             y[r] = x[choices[r] / k], times gates[choices[r]] if given; 0 where choices[r] < 0
//   combine   y [b, n, e], rows, choices, gates [b, l, k]?  ->  x [b, l, e]
//             x[t] = sum over j with rows[t, j] >= 0 of (gates[t, j]) y[rows[t, j]], in the order of j
//   combine_grad_gates  y [b, n, e], rows, dx [b, l, e]  ->  dgates [b, l, k]
//             dgates[t, j] = dx[t] . y[rows[t, j]]; 0 where rows[t, j] < 0
//
// The gradient of dispatch without gates is combine without gates and the other way round; of combine
// with gates, dispatch with gates for y and combine_grad_gates for the gates. No attributes. gates and
// dgates are float32.

#include "kernels/kernel.h"

namespace quintet {

void dispatch_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void combine_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void combine_grad_gates_cpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet
