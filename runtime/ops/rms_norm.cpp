#include "runtime/ops.h"
#include "runtime/tape.h"

namespace quintet {

Tensor ops::rms_norm(const Tensor& x, const Tensor& scale, double eps) {
  return call(table::rms_norm, {x, scale}, {{"eps", eps}})[0];
}

Tensors rms_norm_vjp(const Node& node, const Tensors& grads) {
  return call(ops::table::rms_norm_grad, {node.inputs[0], node.inputs[1], grads[0]}, node.attrs);
}

}  // namespace quintet
