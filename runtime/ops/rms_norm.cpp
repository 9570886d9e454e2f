#include "runtime/execution/tape.h"
#include "runtime/ops/names.h"
#include "runtime/ops/ops.h"

namespace quintet {

Tensor ops::rms_norm(const Tensor& x, const Tensor& scale, double eps) {
  return call(table::rms_norm, {x, scale}, {{"eps", eps}})[0];
}

Tensors rms_norm_vjp(const Node& node, const Tensors& grads) {
  const auto in = inputs_of<rules::rms_norm>(node.inputs);
  const Tensor &x = in["x"], &dy = results_of<rules::rms_norm>(grads)["y"];
  const Tensor before = take_gradient(x);
  if (!before) return call(ops::table::rms_norm_grad, {x, in["scale"], dy}, node.attrs);
  const Tensors all = call(ops::table::add_rms_norm_grad, {x, in["scale"], dy, before}, node.attrs,
                           {true, false, true});
  const auto results = results_of<rules::add_rms_norm_grad>(all);
  return {results["dx"], results["dscale"]};
}

ops::ResidualNorm ops::add_rms_norm(const Tensor& x, const Tensor& y, const Tensor& scale,
                                    const Dropout& dropout, double eps) {
  Attrs attrs = dropout.attrs();
  attrs.set("eps", eps);
  const Tensors outputs = call(table::add_rms_norm, {x, y, scale}, attrs);
  const auto results = results_of<rules::add_rms_norm>(outputs);
  return {results["x_new"], results["out"]};
}

Tensors add_rms_norm_vjp(const Node& node, const Tensors& grads) {
  const auto d = results_of<rules::add_rms_norm>(grads);
  const Tensor &dx_new = d["x_new"], &dout = d["out"];
  const Tensor& x_new = results_of<rules::add_rms_norm>(node.outputs)["x_new"];
  const Tensor& scale = inputs_of<rules::add_rms_norm>(node.inputs)["scale"];
  const bool drops = node.attrs.has("rate");
  if (dx_new && dout) {
    const Tensors all = call(ops::table::add_rms_norm_grad, {x_new, scale, dout, dx_new},
                             node.attrs, {true, drops, true});
    const auto results = results_of<rules::add_rms_norm_grad>(all);
    return {results["dx"], drops ? results["dy"] : results["dx"], results["dscale"]};
  }
  // Only one of the results was used.
  const Op &norm_grad = ops::table::rms_norm_grad, &dropout = ops::table::dropout;
  const Tensors norm =
      dx_new ? Tensors{dx_new, {}}
             : call(norm_grad, {x_new, scale, dout}, attributes_for(norm_grad, node.attrs));
  const auto results = results_of<rules::rms_norm_grad>(norm);
  const Tensor& dx = results["dx"];
  return {dx, drops ? call(dropout, {dx}, attributes_for(dropout, node.attrs))[0] : dx,
          results["dscale"]};
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
