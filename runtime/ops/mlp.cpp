#include "kernels/mlp/mlp.h"

#include "runtime/execution/tape.h"
#include "runtime/ops/cost.h"
#include "runtime/ops/names.h"
#include "runtime/ops/ops.h"

namespace quintet {

Tensor ops::mlp(const Tensor& x, const Tensor& wi_0, const Tensor& wi_1, const Tensor& wo,
                const std::vector<std::string>& activations, const Dropout& dropout) {
  QT_CHECK(dropout.rate == 0 || dropout.broadcast_length,
           "mlp: all of a length share one dropout mask");
  const ExecutionContext& context = ExecutionContext::current();
  const bool gated = !wi_1.absent(),
             keep = context.tape != nullptr || context.kept_products != nullptr;
  Attrs attrs = dropout.attrs();
  Gate::of("mlp", activations, gated).add_to(attrs);
  return call(table::mlp, {x, wi_0, wi_1, wo}, attrs, {true, keep, keep && gated})[0];
}

Tensor ops::mlp_in(const Tensor& x, const Tensor& wi_0, const Tensor& wi_1,
                   const std::vector<std::string>& activations) {
  Attrs attrs;
  Gate::of("mlp_in", activations, !wi_1.absent()).add_to(attrs);
  return call(table::mlp_in, {x, wi_0, wi_1}, attrs)[0];
}

Tensor ops::gate(const Tensor& h0, const Tensor& h1, const std::vector<std::string>& activations) {
  Attrs attrs;
  Gate::of("gate", activations, !h1.absent()).add_to(attrs);
  return call(table::gate, {h0, h1}, attrs)[0];
}

ops::DenseInput ops::gate_fp8(const Tensor& h0, const Tensor& h1,
                              const std::vector<std::string>& activations, const Fp8Scales& to) {
  Attrs attrs;
  Gate::of("gate_fp8", activations, !h1.absent()).add_to(attrs);
  attrs.set("layer", to.layer);
  const Tensors bytes = call(table::gate_fp8, {h0, h1, to.scaling}, attrs);
  return {bytes[0], bytes[1]};
}

Tensors gate_vjp(const Node& node, const Tensors& grads) {
  const Op& gate_grad = ops::table::gate_grad;
  const Tensor &h0 = node.inputs[0], &h1 = node.inputs[1];
  return call(gate_grad, {h0, h1, grads[0]}, attributes_for(gate_grad, node.attrs),
              {true, !h1.absent()});
}

Tensors gate_fp8_vjp(const Node& node, const Tensors& grads) {
  Tensors d = gate_vjp(node, grads);
  d.emplace_back();  // of scaling
  return d;
}

Tensors mlp_vjp(const Node& node, const Tensors& grads) {
  const auto in = inputs_of<rules::mlp>(node.inputs);
  const auto saved = results_of<rules::mlp>(node.outputs);
  const Tensor &x = in["x"], &wi_0 = in["wi_0"], &wi_1 = in["wi_1"], &wo = in["wo"],
               &dz = results_of<rules::mlp>(grads)["z"];
  Tensors operands = node.inputs;
  operands.insert(operands.end(), {saved["h0"], saved["h1"], dz});
  const Tensors outputs = gradients({x, wi_0, wi_1}, ops::table::mlp_grad, operands, node.attrs,
                                    {true, true, !wi_1.absent(), true});
  const auto d = results_of<rules::mlp_grad>(outputs);
  return {
      d["dx"], d["dwi_0"], d["dwi_1"],
      wo.needs_grad() ? parameter_gradient(wo, ops::table::matmul_grad_w, {d["y"], dz}) : Tensor()};
}

Cost mlp_cost(Views in, Views out) {
  const auto operands = inputs_of<rules::mlp>(in);
  const double into = elements(operands["x"]) * (1 + count(operands["wi_1"])),
               out_of = elements(results_of<rules::mlp>(out)["z"]);
  return {.flops = 2 * size(operands["wi_0"], -1) * (into + out_of)};
}

// The gradients of x, of each wi and of y.
Cost mlp_grad_cost(Views in, Views) {
  const auto operands = inputs_of<rules::mlp_grad>(in);
  const double into = elements(operands["x"]) * (1 + count(operands["wi_1"]));
  return {.flops = 2 * size(operands["wi_0"], -1) * (2 * into + elements(operands["dz"]))};
}

Cost mlp_in_cost(Views in, Views) {
  const auto operands = inputs_of<rules::mlp_in>(in);
  return {.flops = 2 * elements(operands["x"]) * size(operands["wi_0"], -1) *
                   (1 + count(operands["wi_1"]))};
}

}  // namespace quintet
