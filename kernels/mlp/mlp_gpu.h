#pragma once
// The first half of the MLP on a GPU: matrix products and one elementwise kernel for the
// activations. x, weights, h0, h1, y, dy, dx float32 or bfloat16; gradients of weights float32. The
// mathematics: mlp.h. Products in bfloat16 accumulate in float32 and are rounded once when stored.

#include "kernels/kernel.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU {

void mlp_in_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void mlp_in_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet::QT_GPU
