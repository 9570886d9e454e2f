#pragma once
// The router's matrix product on a GPU, with jitter, and its gradient, in float32 precision.

#include "kernels/kernel.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU::moe {

/// logits [tokens, experts] = x w + bias, which may be absent, with the attributes of route.h for jitter.
void router_product(const View& x, const View& w, const View& bias, const Attrs& attrs,
                    float* logits, Stream stream);
/// dx = dlogits w^T in x's dtype, dw = x^T dlogits and, unless absent, dbias = 1^T dlogits in float32,
/// the last two added to their addends (null: nothing).
void router_gradients(const View& x, const View& w, const Attrs& attrs, const float* dlogits,
                      const View& dx, const View& dw, const void* dw_addend, const View& dbias,
                      const void* dbias_addend, Stream stream);

}  // namespace quintet::QT_GPU::moe
