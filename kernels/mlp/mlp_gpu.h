#pragma once
// The MLP on a GPU, its activations in the products' launches or after them, whichever was measured
// to be faster (README.md). x, weights, h0, h1, y, z and their gradients float32 or bfloat16;
// gradients of weights float32. The mathematics: mlp.h. Products in bfloat16 accumulate
// in float32 and are rounded once when stored.

#include "kernels/kernel.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU {

void mlp_in_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void mlp_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void mlp_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream);

void gate_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
/// h0's rows and columns are multiples of 16.
void gate_fp8_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void gate_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet::QT_GPU
