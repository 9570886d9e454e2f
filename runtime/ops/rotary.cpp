#include "runtime/execution/tape.h"
#include "runtime/ops/ops.h"

namespace quintet {

Tensor ops::rotate(const Tensor& x, int64_t num_heads, const RotateOptions& options) {
  QT_CHECK(num_heads > 0 && x.size(-1) % (2 * num_heads) == 0,
           "rotate: {} columns are not {} heads of an even width", x.size(-1), num_heads);
  Attrs attrs{{"h", num_heads}, {"max_timescale", options.max_timescale}};
  if (options.turned) attrs.set("turned", *options.turned);
  return call(table::rotate, {x, options.positions}, attrs)[0];
}

Tensors rotate_vjp(const Node& node, const Tensors& grads) {
  return {call(ops::table::rotate_grad, {grads[0], node.inputs[1]}, node.attrs)[0], Tensor()};
}

}  // namespace quintet
