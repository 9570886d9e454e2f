#include "runtime/ops.h"
#include "runtime/tape.h"

namespace quintet {

Tensor ops::rms_norm(const Tensor& x, const Tensor& scale, double eps) {
  return call(table::rms_norm, {x, scale}, {{"eps", eps}})[0];
}

Tensors rms_norm_vjp(const Node& node, const Tensors& grads) {
  return call(ops::table::rms_norm_grad, {node.inputs[0], node.inputs[1], grads[0]}, node.attrs);
}

Tensors rms_norm_phases(const Tensors& in, const Attrs& attrs, const Wanted&) {
  const Tensors squares = call(ops::table::rms_norm_squares, {in[0]});
  return call(ops::table::rms_norm_apply, {in[0], in[1], squares[0]}, attrs);
}

Tensors rms_norm_grad_phases(const Tensors& in, const Attrs& attrs, const Wanted&) {
  const Tensors sums = call(ops::table::rms_norm_products, in);
  return call(ops::table::rms_norm_grad_apply, {in[0], in[1], in[2], sums[0], sums[1]}, attrs);
}

}  // namespace quintet
