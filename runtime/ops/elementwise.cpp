#include "runtime/execution/tape.h"
#include "runtime/ops/ops.h"

namespace quintet {

Attrs ops::Dropout::attrs() const {
  if (rate == 0) return {};
  Attrs attrs{{"rate", rate},
              {"key0", static_cast<int64_t>(key.a)},
              {"key1", static_cast<int64_t>(key.b)},
              {"broadcast_dim", broadcast_length ? int64_t{-2} : int64_t{0}}};
  if (heads > 0) attrs.set("heads", heads);
  return attrs;
}

Tensor ops::dropout(const Tensor& x, const Dropout& dropout) {
  return dropout.rate == 0 ? x : call(table::dropout, {x}, dropout.attrs())[0];
}

Tensors dropout_vjp(const Node& node, const Tensors& grads) {
  return call(ops::table::dropout, {grads[0]}, node.attrs);
}

Tensor ops::add(const Tensor& x, const Tensor& y, const Dropout& dropout) {
  return call(table::add, {x, y}, dropout.attrs())[0];
}

Tensors add_vjp(const Node& node, const Tensors& grads) {
  return {grads[0],
          node.attrs.has("rate") ? call(ops::table::dropout, {grads[0]}, node.attrs)[0] : grads[0]};
}

Tensor ops::scale(const Tensor& x, double factor) {
  return factor == 1 ? x : call(table::scale, {x}, {{"factor", factor}})[0];
}

Tensors scale_vjp(const Node& node, const Tensors& grads) {
  return call(ops::table::scale, {grads[0]}, node.attrs);
}

}  // namespace quintet
