#include "runtime/execution/tape.h"
#include "runtime/ops/ops.h"

namespace quintet {

Tensor ops::rotate(const Tensor& x, int64_t num_heads, double max_timescale) {
  QT_CHECK(num_heads > 0 && x.size(-1) % (2 * num_heads) == 0,
           "rotate: {} columns are not {} heads of an even width", x.size(-1), num_heads);
  return call(table::rotate, {x}, {{"h", num_heads}, {"max_timescale", max_timescale}})[0];
}

Tensors rotate_vjp(const Node& node, const Tensors& grads) {
  return call(ops::table::rotate_grad, {grads[0]}, node.attrs);
}

}  // namespace quintet
