#include "runtime/execution/tape.h"
#include "runtime/ops/names.h"
#include "runtime/ops/ops.h"

namespace quintet {

Tensor ops::embed(const Tensor& ids, const Tensor& table) {
  return call(table::embed, {ids, table})[0];
}

Tensors embed_vjp(const Node& node, const Tensors& grads) {
  const auto in = inputs_of<rules::embed>(node.inputs);
  const Tensor &table = in["table"], &dy = results_of<rules::embed>(grads)["y"];
  return {Tensor(),
          gradients({table}, ops::table::embed_grad, {in["ids"], dy}, {{"v", table.size(0)}})[0]};
}

}  // namespace quintet
