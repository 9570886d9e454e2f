#include "runtime/ops.h"
#include "runtime/tape.h"

namespace quintet {

Tensor ops::embed(const Tensor& ids, const Tensor& table) {
  return call(table::embed, {ids, table})[0];
}

Tensors embed_vjp(const Node& node, const Tensors& grads) {
  const Tensor& table = node.inputs[1];
  return {Tensor(),
          call(ops::table::embed_grad, {node.inputs[0], grads[0]}, {{"v", table.size(0)}})[0]};
}

}  // namespace quintet
