#include "runtime/ops.h"
#include "runtime/tape.h"

namespace quintet {

ops::CrossEntropyResult ops::cross_entropy(const Tensor& x, const Tensor& projection,
                                           const Tensor& targets, const Tensor& weights,
                                           const CrossEntropyOptions& options) {
  const Op& op = options.tied ? table::cross_entropy_t : table::cross_entropy;
  const Tensors out = call(op, {x, projection, targets, weights},
                           {{"label_smoothing", options.label_smoothing},
                            {"z_loss", options.z_loss},
                            {"logit_scale", options.logit_scale}});
  return {out[0], out[1], out[2], out[3]};
}

// The kernel makes the gradients of the loss in its forward pass, while it holds the logits.
Tensors cross_entropy_vjp(const Node& node, const Tensors& grads) {
  QT_ASSERT(grads[0] && !grads[1] && !grads[2] && !grads[3]);
  const double factor = grads[0].item();
  return {ops::scale(node.outputs[4], factor), ops::scale(node.outputs[5], factor), Tensor(),
          Tensor()};
}

namespace {

Tensors in_phases(const Op& statistics_op, const Op& apply, const Tensors& in, Attrs attrs,
                  const Wanted& wanted) {
  attrs.set("s", int64_t{5});  // numbers that a block passes on
  const Tensors statistics = call(statistics_op, {in[0], in[1], in[2]}, attrs);
  return call(apply, {in[0], in[1], in[2], in[3], statistics[0]}, attrs, wanted);
}

}  // namespace

Tensors cross_entropy_phases(const Tensors& in, const Attrs& attrs, const Wanted& wanted) {
  return in_phases(ops::table::cross_entropy_statistics, ops::table::cross_entropy_apply, in, attrs,
                   wanted);
}

Tensors cross_entropy_t_phases(const Tensors& in, const Attrs& attrs, const Wanted& wanted) {
  return in_phases(ops::table::cross_entropy_t_statistics, ops::table::cross_entropy_t_apply, in,
                   attrs, wanted);
}

}  // namespace quintet
