#pragma once
// Mixture of experts on a GPU: activations and weights float32 or bfloat16; the router's weights,
// gates, losses and gradients of weights float32, sums too. Meanings: route.h, dispatch.h, experts.h,
// mask.h. The same bits every time, but for the router's product (simt/gemm.h).

#include "kernels/kernel.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU {

void route_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void route_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void dispatch_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void combine_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void combine_grad_gates_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void experts_in_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void experts_in_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void grouped_matmul_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void grouped_matmul_t_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void grouped_matmul_grad_w_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void experts_dropout_gpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet::QT_GPU
