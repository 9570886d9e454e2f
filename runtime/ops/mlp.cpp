#include "kernels/mlp/mlp.h"

#include "runtime/ops.h"
#include "runtime/tape.h"

namespace quintet {

Tensor ops::mlp_in(const Tensor& x, const Tensor& wi_0, const Tensor& wi_1,
                   const std::vector<std::string>& activations) {
  const bool gated = !wi_1.absent();
  QT_CHECK(activations.size() == (gated ? 2u : 1u), "mlp_activations: {} names for {} matrices",
           activations.size(), gated ? 2 : 1);
  const auto code = [&](size_t i) {
    return static_cast<int64_t>(activation_from_name(activations[i]));
  };
  const Attrs attrs{{"act0", code(0)}, {"act1", gated ? code(1) : int64_t{0}}};
  const bool keep = Tape::current() != nullptr;
  return call(table::mlp_in, {x, wi_0, wi_1}, attrs, {true, keep, keep && gated})[0];
}

Tensors mlp_in_vjp(const Node& node, const Tensors& grads) {
  const bool gated = !node.inputs[2].absent();
  return call(
      ops::table::mlp_in_grad,
      {node.inputs[0], node.inputs[1], node.inputs[2], node.outputs[1], node.outputs[2], grads[0]},
      node.attrs, {true, true, gated});
}

}  // namespace quintet
