#pragma once
// A transformer's MLP, gated (T5 1.1) or not (T5 1.0).
//
//   mlp       x [..., e], wi_0 [e, f], wi_1? [e, f], wo [f, o]
//             ->  z [..., o], h0? [..., f], h1? [..., f]
//             h0 = x wi_0;  h1 = x wi_1;  y = dropout(act0(h0) act1(h1)), without wi_1 of act0(h0);
//             z = y wo
//   mlp_grad  x, wi_0, wi_1?, wo, h0, h1?, dz [..., o]
//             ->  dx [..., e], dwi_0 [e, f], dwi_1? [e, f], y [..., f]
//             y is made again for the gradient of wo, y^T dz; dwi_0 and dwi_1 may be added to what is
//             there (`&` in runtime/op/ops.def)
//   mlp_in    x, wi_0, wi_1?  ->  y, without dropout; it has no gradient
//   gate      h0 [..., f], h1? [..., f]  ->  y [..., f]     y = act0(h0) act1(h1)
//   gate_grad h0, h1?, dy  ->  dh0, dh1?      dh0 = dy act0'(h0) act1(h1), dh1 = dy act0(h0) act1'(h1)
//
// Attributes: act0, act1 (int64 of an Activation; act1 only with wi_1, default linear); rate, key0,
// key1, broadcast_dim = -2 as of dropout.h, which are absent where nothing is dropped.
// float32 only. Sums run in an order that depends on shapes and thread count alone.

#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernel.h"

namespace quintet {

/// T5X's names (T5Config.mlp_activations): gelu is the tanh form, silu is also called swish. The exact
/// gelu_erf, h Phi(h), which Hugging Face calls gelu, has no name there.
enum class Activation : int64_t { linear, relu, gelu, silu, gelu_erf };

/// Throws a usage error that begins with `what`, where the name is from, and lists the known names.
Activation activation_from_name(std::string_view name, std::string_view what = "activations");
std::string_view name_of(Activation activation);

/// The activations of an MLP's products, the second only where two gate each other.
struct Gate {
  Activation act0 = Activation::linear, act1 = Activation::linear;

  /// Of T5X's mlp_activations; a usage error that names `op` unless there is one for each matrix.
  static Gate of(const char* op, const std::vector<std::string>& names, bool gated);
  /// Of an op's attributes act0 and act1.
  static Gate of(const char* op, const Attrs& attrs);
  void add_to(Attrs& attrs) const;
};

/// Sizes of y and where it lies in the whole array, without elements: for its dropout mask.
View hidden_units(const View& x, const View& wi_0);

void mlp_in_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void mlp_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void mlp_grad_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void gate_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void gate_grad_cpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet
