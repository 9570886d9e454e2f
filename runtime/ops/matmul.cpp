#include "runtime/ops.h"
#include "runtime/tape.h"

namespace quintet {

Tensor ops::matmul(const Tensor& x, const Tensor& w) { return call(table::matmul, {x, w})[0]; }
Tensor ops::matmul_t(const Tensor& x, const Tensor& w) { return call(table::matmul_t, {x, w})[0]; }

Tensors matmul_vjp(const Node& node, const Tensors& grads) {
  const Tensor &x = node.inputs[0], &w = node.inputs[1], &dy = grads[0];
  return {x.needs_grad() ? call(ops::table::matmul_t, {dy, w})[0] : Tensor(),
          w.needs_grad() ? parameter_gradient(w, ops::table::matmul_grad_w, {x, dy}) : Tensor()};
}

Tensors matmul_t_vjp(const Node& node, const Tensors& grads) {
  const Tensor &x = node.inputs[0], &w = node.inputs[1], &dy = grads[0];
  return {x.needs_grad() ? call(ops::table::matmul, {dy, w})[0] : Tensor(),
          w.needs_grad() ? parameter_gradient(w, ops::table::matmul_grad_w, {dy, x}) : Tensor()};
}

}  // namespace quintet
