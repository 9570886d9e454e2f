#pragma once
// Columns that belong to heads, taken apart and put together: what a kernel that is fused of several made of a
// row, or is to read.
//
//   split_heads  x [..., h n]  ->  y_0 [..., h p], y_1 [..., h q], y_2 [..., h r] or absent
//                                          of each head the first p columns, the next q, the next r; n = p + q + r
//   join_heads   y_0, y_1, y_2 or absent  ->  x
//
// Attributes: h; p, q, r or n. Each is the other's gradient.

#include "kernels/kernel.h"

namespace quintet {

void split_heads_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void join_heads_cpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet
