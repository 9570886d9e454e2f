#include "runtime/ops.h"
#include "runtime/tape.h"

namespace quintet {

Tensor ops::attention(const Tensor& q, const Tensor& k, const Tensor& v,
                      const Tensor& relative_bias, const AttentionMask& mask,
                      const AttentionOptions& options) {
  QT_CHECK(options.num_heads > 0 && q.size(-1) % options.num_heads == 0,
           "attention: num_heads {} does not divide joined_kv {}", options.num_heads, q.size(-1));
  Attrs attrs{{"h", options.num_heads},
              {"causal", mask.causal},
              {"bidirectional", options.bidirectional},
              {"max_distance", options.max_distance},
              {"scale", options.scale}};
  if (options.dropout_rate > 0) {
    attrs.set("rate", options.dropout_rate);
    attrs.set("key0", static_cast<int64_t>(options.dropout_key.a));
    attrs.set("key1", static_cast<int64_t>(options.dropout_key.b));
  }
  return call(table::attention,
              {q, k, v, relative_bias, mask.query_segments, mask.key_segments, mask.prefix},
              attrs)[0];
}

Tensors attention_vjp(const Node& node, const Tensors& grads) {
  Tensors operands = node.inputs;
  operands.push_back(node.outputs[0]);
  operands.push_back(node.outputs[1]);
  operands.push_back(grads[0]);
  Tensors result = call(ops::table::attention_grad, operands, node.attrs,
                        {true, true, true, !node.inputs[3].absent()});
  result.resize(node.inputs.size());
  return result;
}

}  // namespace quintet
