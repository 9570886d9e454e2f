#include "runtime/ops.h"
#include "runtime/tape.h"

namespace quintet {

Tensor ops::rms_norm(const Tensor& x, const Tensor& scale, double eps) {
  return call(table::rms_norm, {x, scale}, {{"eps", eps}})[0];
}

Tensors rms_norm_vjp(const Node& node, const Tensors& grads) {
  return call(ops::table::rms_norm_grad, {node.inputs[0], node.inputs[1], grads[0]}, node.attrs);
}

ops::ResidualNorm ops::add_rms_norm(const Tensor& x, const Tensor& y, const Tensor& scale,
                                    const Dropout& dropout, double eps) {
  Attrs attrs = dropout.attrs();
  attrs.set("eps", eps);
  const Tensors made = call(table::add_rms_norm, {x, y, scale}, attrs);
  return {made[0], made[1]};
}

Tensors add_rms_norm_vjp(const Node& node, const Tensors& grads) {
  const Tensor &x_new = node.outputs[0], &scale = node.inputs[2];
  const bool drops = node.attrs.has("rate");
  if (grads[0] && grads[1]) {
    const Tensors all = call(ops::table::add_rms_norm_grad, {x_new, scale, grads[1], grads[0]},
                             node.attrs, {true, drops, true});
    return {all[0], drops ? all[1] : all[0], all[2]};
  }
  // Only one of the results was used.
  const Tensors norm = grads[0]
                           ? Tensors{grads[0], {}}
                           : call(ops::table::rms_norm_grad, {x_new, scale, grads[1]}, node.attrs);
  return {norm[0], drops ? call(ops::table::dropout, {norm[0]}, node.attrs)[0] : norm[0], norm[1]};
}

Tensors rms_norm_phases(const Tensors& in, const Attrs& attrs, const Wanted&) {
  const Tensors squares = call(ops::table::rms_norm_squares, {in[0]});
  return call(ops::table::rms_norm_apply, {in[0], in[1], squares[0]}, attrs);
}

Tensors rms_norm_grad_phases(const Tensors& in, const Attrs& attrs, const Wanted&) {
  const Tensors sums = call(ops::table::rms_norm_products, in);
  return call(ops::table::rms_norm_grad_apply, {in[0], in[1], in[2], sums[0], sums[1]}, attrs);
}

Tensors add_rms_norm_phases(const Tensors& in, const Attrs& attrs, const Wanted&) {
  const Tensor x_new = call(ops::table::add, {in[0], in[1]}, attrs)[0];
  return {x_new, call(ops::table::rms_norm, {x_new, in[2]}, attrs)[0]};
}

Tensors add_rms_norm_grad_phases(const Tensors& in, const Attrs& attrs, const Wanted& wanted) {
  const Tensors norm = call(ops::table::rms_norm_grad, {in[0], in[1], in[2]}, attrs);
  const Tensor dx = call(ops::table::add, {in[3], norm[0]})[0];
  return {dx, wanted[1] ? call(ops::table::dropout, {dx}, attrs)[0] : Tensor(), norm[1]};
}

}  // namespace quintet
