#include "kernels/attention/ranges.h"
#include "runtime/execution/tape.h"
#include "runtime/ops/cost.h"
#include "runtime/ops/names.h"
#include "runtime/ops/ops.h"

namespace quintet {

ops::AttentionMask ops::with_ranges(AttentionMask mask) {
  const Device& device = Device::current();
  // A plan, which is compared with ranks on CPUs, leaves them out: a launch and a few KiB a mask.
  if (device.is_cpu() || !device.memory_is_real() || mask.query_segments.absent()) return mask;
  mask.ranges = call(
      table::attention_ranges, {mask.query_segments, mask.key_segments, mask.prefix},
      {{"causal", mask.causal}, {"n", attention::ranges_length(mask.query_segments.size(1))}})[0];
  return mask;
}

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
  return call(
      table::attention,
      {q, k, v, relative_bias, mask.query_segments, mask.key_segments, mask.prefix, mask.ranges},
      attrs)[0];
}

Tensors attention_vjp(const Node& node, const Tensors& grads) {
  const auto in = inputs_of<rules::attention>(node.inputs);
  const auto saved = results_of<rules::attention>(node.outputs);
  Tensors operands = node.inputs;
  operands.insert(operands.end(),
                  {saved["out"], saved["logsumexp"], results_of<rules::attention>(grads)["out"]});
  Tensors result =
      gradients({in["q"], in["k"], in["v"], in["relative_bias"]}, ops::table::attention_grad,
                operands, node.attrs, {true, true, true, !in["relative_bias"].absent()});
  result.resize(node.inputs.size());
  return result;
}

namespace {

/// Of `products` of queries with all keys, and of scores that are saved `times`.
Cost scores_cost(const View& q, const View& k, const View& logsumexp, double products,
                 double times) {
  const double keys = size(k, 1);
  const double scores = logsumexp.absent() ? 0 : elements(logsumexp) * keys;
  return {.flops = 2 * products * elements(q) * keys,
          .score_bytes = times * scores * static_cast<double>(size_of(q.dtype)),
          .exponentials = scores};
}

}  // namespace

// Scores and their use; backward two gradients of each.
Cost attention_cost(Views in, Views out) {
  const auto operands = inputs_of<rules::attention>(in);
  return scores_cost(operands["q"], operands["k"], results_of<rules::attention>(out)["logsumexp"],
                     2, 1);
}

Cost attention_grad_cost(Views in, Views) {
  const auto operands = inputs_of<rules::attention_grad>(in);
  return scores_cost(operands["q"], operands["k"], operands["logsumexp"], 4, 2);
}

}  // namespace quintet
