#include "runtime/execution/tape.h"
#include "runtime/ops/cost.h"
#include "runtime/ops/names.h"
#include "runtime/ops/ops.h"

namespace quintet {

Tensor ops::matmul(const Tensor& x, const Tensor& w) { return call(table::matmul, {x, w})[0]; }
Tensor ops::matmul_t(const Tensor& x, const Tensor& w) { return call(table::matmul_t, {x, w})[0]; }

Tensors matmul_vjp(const Node& node, const Tensors& grads) {
  const auto in = inputs_of<rules::matmul>(node.inputs);
  const Tensor &x = in["x"], &w = in["w"], &dy = results_of<rules::matmul>(grads)["y"];
  return {x.needs_grad() ? gradients({x}, ops::table::matmul_t, {dy, w})[0] : Tensor(),
          w.needs_grad() ? parameter_gradient(w, ops::table::matmul_grad_w, {x, dy}) : Tensor()};
}

Tensors matmul_t_vjp(const Node& node, const Tensors& grads) {
  const auto in = inputs_of<rules::matmul_t>(node.inputs);
  const Tensor &x = in["x"], &w = in["w"], &dy = results_of<rules::matmul_t>(grads)["y"];
  return {x.needs_grad() ? gradients({x}, ops::table::matmul, {dy, w})[0] : Tensor(),
          w.needs_grad() ? parameter_gradient(w, ops::table::matmul_grad_w, {dy, x}) : Tensor()};
}

Cost matmul_cost(Views in, Views out) {
  return {.flops = 2 * elements(inputs_of<rules::matmul>(in)["x"]) *
                   size(results_of<rules::matmul>(out)["y"], -1)};
}

Cost matmul_grad_w_cost(Views in, Views) {
  const auto operands = inputs_of<rules::matmul_grad_w>(in);
  return {.flops = 2 * elements(operands["x"]) * size(operands["dy"], -1)};
}

}  // namespace quintet
