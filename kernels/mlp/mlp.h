#pragma once
// The first half of a transformer's MLP, gated (T5 1.1) or not (T5 1.0).
//
//   mlp_in       x [..., e], wi_0 [e, f], wi_1? [e, f]  ->  y [..., f], h0? [..., f], h1? [..., f]
//                h0 = x wi_0;  h1 = x wi_1;  y = act0(h0) act1(h1), or act0(h0) without wi_1
//   mlp_in_grad  x, wi_0, wi_1?, h0?, h1?, dy [..., f]  ->  dx [..., e], dwi_0 [e, f], dwi_1? [e,
//   f]
//                products h0, h1 that are absent are computed again
//
// Attributes: act0, act1 (int64 of an Activation; act1 only with wi_1, default linear).
// float32 only. Sums run in an order that depends on shapes and thread count alone.

#include <string_view>

#include "kernels/kernel.h"

namespace quintet {

/// T5X's names (T5Config.mlp_activations); gelu is the tanh form, silu is also called swish.
enum class Activation : int64_t { linear, relu, gelu, silu };

/// Throws a usage error that lists the known names.
Activation activation_from_name(std::string_view name);
std::string_view name_of(Activation activation);

void mlp_in_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void mlp_in_grad_cpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet
