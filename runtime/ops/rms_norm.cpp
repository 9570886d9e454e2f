#include "runtime/execution/tape.h"
#include "runtime/ops/names.h"
#include "runtime/ops/ops.h"

namespace quintet {

Tensor ops::rms_norm(const Tensor& x, const Tensor& scale, double eps) {
  return call(table::rms_norm, {x, scale}, {{"eps", eps}})[0];
}

ops::DenseInput ops::rms_norm_fp8(const Tensor& x, const Tensor& scale, const Fp8Scales& to,
                                  double eps) {
  const Tensors bytes =
      call(table::rms_norm_fp8, {x, scale, to.scaling}, {{"eps", eps}, {"layer", to.layer}});
  return {bytes[0], bytes[1]};
}

namespace {

/// Gradients of x and scale.
Tensors norm_gradients(const Tensor& x, const Tensor& scale, const Tensor& dy, const Attrs& attrs) {
  const Op &norm = ops::table::rms_norm_grad, &sum = ops::table::add_rms_norm_grad;
  const Tensor before = take_gradient(x);
  if (!before) return gradients({x, scale}, norm, {x, scale, dy}, attributes_for(norm, attrs));
  const Tensors all = gradients({x, {}, scale}, sum, {x, scale, dy, before},
                                attributes_for(sum, attrs), {true, false, true});
  const auto results = results_of<rules::add_rms_norm_grad>(all);
  return {results["dx"], results["dscale"]};
}

}  // namespace

Tensors rms_norm_vjp(const Node& node, const Tensors& grads) {
  const auto in = inputs_of<rules::rms_norm>(node.inputs);
  return norm_gradients(in["x"], in["scale"], results_of<rules::rms_norm>(grads)["y"], node.attrs);
}

Tensors rms_norm_fp8_vjp(const Node& node, const Tensors& grads) {
  const auto in = inputs_of<rules::rms_norm_fp8>(node.inputs);
  Tensors d = norm_gradients(in["x"], in["scale"], results_of<rules::rms_norm_fp8>(grads)["y8"],
                             node.attrs);
  d.emplace_back();  // of scaling
  return d;
}

ops::ResidualNorm ops::add_rms_norm(const Tensor& x, const Tensor& y, const Tensor& scale,
                                    const Dropout& dropout, double eps) {
  Attrs attrs = dropout.attrs();
  attrs.set("eps", eps);
  const Tensors outputs = call(table::add_rms_norm, {x, y, scale}, attrs);
  const auto results = results_of<rules::add_rms_norm>(outputs);
  return {results["x_new"], results["out"]};
}

ops::ResidualNormFp8 ops::add_rms_norm_fp8(const Tensor& x, const Tensor& y, const Tensor& scale,
                                           const Fp8Scales& to, const Dropout& dropout,
                                           double eps) {
  Attrs attrs = dropout.attrs();
  attrs.set("eps", eps);
  attrs.set("layer", to.layer);
  const Tensors outputs = call(table::add_rms_norm_fp8, {x, y, scale, to.scaling}, attrs);
  const auto results = results_of<rules::add_rms_norm_fp8>(outputs);
  return {results["x_new"], {results["y8"], results["y8_t"]}};
}

namespace {

/// Gradients of x, y and scale; of what the ops made, one may be absent.
Tensors sum_norm_gradients(const Tensor& x_new, const Tensor& scale, const Tensor& dx_new,
                           const Tensor& dout, const Attrs& attrs) {
  const bool drops = attrs.has("rate");
  if (dx_new && dout) {
    const Op& sum = ops::table::add_rms_norm_grad;
    const Tensors all = gradients({{}, {}, scale}, sum, {x_new, scale, dout, dx_new},
                                  attributes_for(sum, attrs), {true, drops, true});
    const auto results = results_of<rules::add_rms_norm_grad>(all);
    return {results["dx"], drops ? results["dy"] : results["dx"], results["dscale"]};
  }
  // Only one of the results was used.
  const Op &norm_grad = ops::table::rms_norm_grad, &dropout = ops::table::dropout;
  const Tensors norm = dx_new ? Tensors{dx_new, {}}
                              : gradients({{}, scale}, norm_grad, {x_new, scale, dout},
                                          attributes_for(norm_grad, attrs));
  const auto results = results_of<rules::rms_norm_grad>(norm);
  const Tensor& dx = results["dx"];
  return {dx, drops ? call(dropout, {dx}, attributes_for(dropout, attrs))[0] : dx,
          results["dscale"]};
}

}  // namespace

Tensors add_rms_norm_vjp(const Node& node, const Tensors& grads) {
  const auto d = results_of<rules::add_rms_norm>(grads);
  return sum_norm_gradients(results_of<rules::add_rms_norm>(node.outputs)["x_new"],
                            inputs_of<rules::add_rms_norm>(node.inputs)["scale"], d["x_new"],
                            d["out"], node.attrs);
}

Tensors add_rms_norm_fp8_vjp(const Node& node, const Tensors& grads) {
  const auto d = results_of<rules::add_rms_norm_fp8>(grads);
  Tensors of_inputs = sum_norm_gradients(results_of<rules::add_rms_norm_fp8>(node.outputs)["x_new"],
                                         inputs_of<rules::add_rms_norm_fp8>(node.inputs)["scale"],
                                         d["x_new"], d["y8"], node.attrs);
  of_inputs.emplace_back();  // of scaling
  return of_inputs;
}

Tensors rms_norm_phases(const Tensors& inputs, const Attrs& attrs, const OutputMask&) {
  const auto in = inputs_of<rules::rms_norm>(inputs);
  const Tensors squares = call(ops::table::rms_norm_squares, {in["x"]});
  return call(ops::table::rms_norm_apply, {in["x"], in["scale"], squares[0]}, attrs);
}

Tensors rms_norm_grad_phases(const Tensors& inputs, const Attrs& attrs, const OutputMask&) {
  const auto in = inputs_of<rules::rms_norm_grad>(inputs);
  const Tensors outputs = call(ops::table::rms_norm_products, inputs);
  const auto sums = results_of<rules::rms_norm_products>(outputs);
  return call(ops::table::rms_norm_grad_apply,
              {in["x"], in["scale"], in["dy"], sums["squares"], sums["products"]}, attrs);
}

Tensors add_rms_norm_phases(const Tensors& inputs, const Attrs& attrs, const OutputMask&) {
  const auto in = inputs_of<rules::add_rms_norm>(inputs);
  const Op &add = ops::table::add, &norm = ops::table::rms_norm;
  const Tensor x_new = call(add, {in["x"], in["y"]}, attributes_for(add, attrs))[0];
  return {x_new, call(norm, {x_new, in["scale"]}, attributes_for(norm, attrs))[0]};
}

Tensors add_rms_norm_grad_phases(const Tensors& inputs, const Attrs& attrs,
                                 const OutputMask& mask) {
  const auto in = inputs_of<rules::add_rms_norm_grad>(inputs);
  const Op &norm_grad = ops::table::rms_norm_grad, &dropout = ops::table::dropout;
  const Tensors outputs =
      call(norm_grad, {in["x_new"], in["scale"], in["dout"]}, attributes_for(norm_grad, attrs));
  const auto norm = results_of<rules::rms_norm_grad>(outputs);
  const Tensor dx = call(ops::table::add, {in["dx_new"], norm["dx"]})[0];
  const bool drops = mask[Position<rules::add_rms_norm_grad, Side::kResults>("dy").index];
  return {dx, drops ? call(dropout, {dx}, attributes_for(dropout, attrs))[0] : Tensor(),
          norm["dscale"]};
}

}  // namespace quintet
