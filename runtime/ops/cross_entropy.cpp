#include "runtime/execution/gradient_buckets.h"
#include "runtime/execution/tape.h"
#include "runtime/ops/cost.h"
#include "runtime/ops/names.h"
#include "runtime/ops/ops.h"

namespace quintet {

ops::CrossEntropyResult ops::cross_entropy(const Tensor& x, const Tensor& projection,
                                           const Tensor& targets, const Tensor& weights,
                                           const CrossEntropyOptions& options) {
  const Op& op = options.tied ? table::cross_entropy_t : table::cross_entropy;
  Attrs attrs{{"label_smoothing", options.label_smoothing},
              {"z_loss", options.z_loss},
              {"logit_scale", options.logit_scale}};
  const Tape* const tape = ExecutionContext::current().tape;
  GradientBuckets* const buckets = tape == nullptr ? nullptr : tape->buckets();
  Tensors sums(op.rule.outputs.size());
  Tensor& sum = sums[Position<rules::cross_entropy, Side::kResults>("dprojection").index];
  if (options.is_total && buckets != nullptr && projection.needs_grad())
    sum = buckets->take_sum(projection);
  if (sum) attrs.set("is_total", true);
  const Tensors out = call_adding(op, {x, projection, targets, weights}, attrs, {}, sums);
  if (sum) buckets->return_sum(projection, std::move(sum));
  const auto results = results_of<rules::cross_entropy>(out);
  return {results["loss"], results["z_loss"], results["correct"], results["log_prob"]};
}

// The kernel makes the gradients of the loss in its forward pass, while it holds the logits.
Tensors cross_entropy_vjp(const Node& node, const Tensors& grads) {
  const auto d = results_of<rules::cross_entropy>(grads),
             saved = results_of<rules::cross_entropy>(node.outputs);
  QT_ASSERT(d["loss"] && !d["z_loss"] && !d["correct"] && !d["log_prob"]);
  const double factor = d["loss"].item();
  QT_CHECK(factor == 1 || !node.attrs.get_or<bool>("is_total", false),
           "cross_entropy: the loss was added to others' gradients and is multiplied by {} "
           "afterwards; a model that "
           "scales its loss says so by has_own_loss(), another program by "
           "TrainerOptions::loss_is_total = false",
           factor);
  return {GradientBuckets::scaled(saved["dx"], factor),
          GradientBuckets::scaled(saved["dprojection"], factor), Tensor(), Tensor()};
}

namespace {

Tensors in_phases(const Op& statistics_op, const Op& apply, const Tensors& inputs,
                  const Attrs& attrs, const OutputMask& mask) {
  const auto in = inputs_of<rules::cross_entropy>(inputs);
  Attrs with_size = attrs;
  with_size.set("s", int64_t{5});  // numbers that a block passes on
  Tensors operands = inputs;
  operands.push_back(call(statistics_op, {in["x"], in["projection"], in["targets"]}, with_size)[0]);
  return call(apply, operands, attrs, mask);
}

/// Of the logits and of products as large.
Cost products_cost(Views in, double products) {
  const auto operands = inputs_of<rules::cross_entropy>(in);
  const View& x = operands["x"];
  const auto rows = static_cast<double>(x.rows());
  return {.flops = 2 * rows * elements(operands["projection"]) * products,
          .exponentials = rows * elements(operands["projection"]) / size(x, -1)};
}
double gradients(Views out) {
  const auto results = results_of<rules::cross_entropy>(out);
  return count(results["dx"]) + count(results["dprojection"]);
}

}  // namespace

Cost logits_cost(Views in, Views) { return products_cost(in, 1); }
Cost cross_entropy_cost(Views in, Views out) { return products_cost(in, 1 + gradients(out)); }
// The logits are those of the phase before, made again.
Cost cross_entropy_apply_cost(Views in, Views out) { return products_cost(in, gradients(out)); }

Tensors cross_entropy_phases(const Tensors& in, const Attrs& attrs, const OutputMask& mask) {
  return in_phases(ops::table::cross_entropy_statistics, ops::table::cross_entropy_apply, in, attrs,
                   mask);
}

Tensors cross_entropy_t_phases(const Tensors& in, const Attrs& attrs, const OutputMask& mask) {
  return in_phases(ops::table::cross_entropy_t_statistics, ops::table::cross_entropy_t_apply, in,
                   attrs, mask);
}

}  // namespace quintet
