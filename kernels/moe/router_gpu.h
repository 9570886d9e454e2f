#pragma once
// The router's matrix product on a GPU, with jitter, and its gradient, in float32 precision.

#include "kernels/kernel.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU::moe {

/// logits [tokens, experts] = x w, with the attributes of route.h for jitter.
void router_product(const View& x, const View& w, const Attrs& attrs, float* logits, Stream stream);
/// dx = dlogits w^T in x's dtype, dw = x^T dlogits in float32.
void router_gradients(const View& x, const View& w, const Attrs& attrs, const float* dlogits,
                      const View& dx, const View& dw, Stream stream);

}  // namespace quintet::QT_GPU::moe
