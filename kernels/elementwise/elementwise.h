#pragma once
// Elementwise ops.
//
//   add    x [...], y [...]  ->  z [...]    z = x + y; with the attributes of dropout (rate, key0,
//                                           key1, broadcast_dim; see dropout.h): z = x + dropout(y)
//   scale  x [...]           ->  y [...]    y = factor x; attribute factor (double)
//
// Gradients: of add, dz for x and dz, or dropout(dz) with the same attributes, for y; of scale,
// scale(dy) with the same factor. float32 only.

#include "kernels/kernel.h"

namespace quintet {

void add_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void scale_cpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet
