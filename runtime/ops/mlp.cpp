#include "kernels/mlp/mlp.h"

#include "runtime/ops.h"
#include "runtime/tape.h"

namespace quintet {

Tensor ops::mlp(const Tensor& x, const Tensor& wi_0, const Tensor& wi_1, const Tensor& wo,
                const std::vector<std::string>& activations, const Dropout& dropout) {
  QT_CHECK(dropout.rate == 0 || dropout.broadcast_length,
           "mlp: all of a length share one dropout mask");
  const bool gated = !wi_1.absent(), keep = Tape::current() != nullptr;
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

Tensors mlp_vjp(const Node& node, const Tensors& grads) {
  const Tensor &wi_1 = node.inputs[2], &wo = node.inputs[3], &dz = grads[0];
  Tensors operands = node.inputs;
  operands.insert(operands.end(), {node.outputs[1], node.outputs[2], dz});
  Tensors result =
      call(ops::table::mlp_grad, operands, node.attrs, {true, true, !wi_1.absent(), true});
  const Tensor y = result[3];
  result[3] =
      wo.needs_grad() ? parameter_gradient(wo, ops::table::matmul_grad_w, {y, dz}) : Tensor();
  return result;
}

}  // namespace quintet
