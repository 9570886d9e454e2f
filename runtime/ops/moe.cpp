#include "kernels/mlp/mlp.h"
#include "runtime/execution/row_exchange.h"
#include "runtime/execution/tape.h"
#include "runtime/ops/cost.h"
#include "runtime/ops/names.h"
#include "runtime/ops/ops.h"

namespace quintet {
namespace {

/// Of offsets, of all experts or of a rank's: of all.
int64_t experts_of(const Tensor& offsets) {
  const int64_t local = offsets.block().sizes[1];
  return offsets.size(1) / local * (local - 1);
}

}  // namespace

int64_t ops::RouteOptions::choices(int64_t experts) const {
  return router == Router::experts_choose ? experts : num_selected_experts;
}

int64_t ops::RouteOptions::packed_rows(int64_t batch, int64_t length, int64_t experts) const {
  if (router != Router::experts_choose) return length * num_selected_experts;
  const int64_t slots = groups * experts * std::min(capacity, group_size);
  return (slots + batch - 1) / std::max<int64_t>(batch, 1);
}

Attrs ops::RouteOptions::attributes(int64_t batch, int64_t length, int64_t experts) const {
  return {{"router", static_cast<int64_t>(router)},
          {"k", choices(experts)},
          {"capacity", capacity},
          {"group_size", group_size},
          {"groups", groups},
          {"batch_priority", batch_priority},
          {"ignore_padding", ignore_padding},
          {"n", packed_rows(batch, length, experts)},
          {"s", experts + 1},
          {"c", int64_t{5}},
          {"padded_batch", padded_batch},
          {"padded_length", padded_length},
          {"jitter", jitter},
          {"key0", static_cast<int64_t>(jitter_key.a)},
          {"key1", static_cast<int64_t>(jitter_key.b)}};
}

ops::Routed ops::route(const Tensor& x, const Tensor& w, const Tensor& bias,
                       const RouteOptions& o) {
  const int64_t batch = x.global_slice().sizes[0], length = x.size(1), experts = w.size(1);
  const int64_t local = x.block().sizes[0];
  QT_CHECK(
      local == batch || (local * length % o.group_size == 0 && o.padded_batch == 0),
      "route: {} of the batch's {} rows of {} tokens are on a rank, which does not make whole "
      "groups "
      "of {} tokens{}; take a larger batch, a smaller max_group_size or fewer ranks over the batch",
      local, batch, length, o.group_size, o.padded_batch == 0 ? "" : " with the padding they need");
  QT_CHECK(bias.absent() || o.padded_batch == 0,
           "route: {} tokens are no multiple of the {} experts, and routers with a bias are not "
           "padded; take a batch or length that makes one",
           batch * length, experts);
  const Tensors outputs = call(table::route, {x, w, bias}, o.attributes(batch, length, experts));
  // Of one expert of a rank's tokens; nobody counts them where tokens are padded to whole groups.
  const int64_t expert_slots =
      o.padded_batch == 0 ? local * length / o.group_size * std::min(o.capacity, o.group_size) : 0;
  const auto out = results_of<rules::route>(outputs);
  const auto exchange = RowExchange::of(out["offsets"], out["choices"], experts, expert_slots);
  return {.gates = out["gates"],
          .auxiliary_loss = out["auxiliary_loss"],
          .z_loss = out["z_loss"],
          .rows = out["rows"],
          .choices = out["choices"],
          .offsets = exchange == nullptr ? out["offsets"] : exchange->offsets(),
          .experts = out["experts"],
          .positions = out["positions"],
          .counts = out["counts"],
          .load = out["load"],
          .exchange = exchange};
}

Tensors route_vjp(const Node& node, const Tensors& grads) {
  const auto in = inputs_of<rules::route>(node.inputs);
  const auto saved = results_of<rules::route>(node.outputs), d = results_of<rules::route>(grads);
  const Op& gradient = ops::table::route_grad;
  return gradients({in["x"], in["w"], in["bias"]}, gradient,
                   {in["x"], in["w"], saved["logits"], saved["experts"], saved["gates"], d["gates"],
                    d["auxiliary_loss"], d["z_loss"]},
                   attributes_for(gradient, node.attrs), {true, true, !in["bias"].absent()});
}

Cost route_cost(Views in, Views) {
  const auto operands = inputs_of<rules::route>(in);
  return {.flops = 2 * elements(operands["x"]) * size(operands["w"], -1)};
}

Cost route_grad_cost(Views in, Views) {
  const auto operands = inputs_of<rules::route_grad>(in);
  return {.flops = 4 * elements(operands["x"]) * size(operands["w"], -1)};
}

Tensor ops::dispatch(const Tensor& x, const Routed& routed) {
  return to_experts(call(table::dispatch, {x, routed.rows, routed.choices, Tensor()})[0],
                    routed.exchange);
}

Tensors dispatch_vjp(const Node& node, const Tensors& grads) {
  const auto in = inputs_of<rules::dispatch>(node.inputs);
  const Tensor& dy = results_of<rules::dispatch>(grads)["y"];
  return {call(ops::table::combine, {dy, in["rows"], in["choices"], Tensor()})[0], Tensor(),
          Tensor(), Tensor()};
}

Tensor ops::combine(const Tensor& y, const Routed& routed) {
  return call(table::combine,
              {from_experts(y, routed.exchange), routed.rows, routed.choices, routed.gates})[0];
}

Tensors combine_vjp(const Node& node, const Tensors& grads) {
  const auto in = inputs_of<rules::combine>(node.inputs);
  const Tensor &y = in["y"], &rows = in["rows"], &choices = in["choices"], &gates = in["gates"];
  const Tensor& dx = results_of<rules::combine>(grads)["x"];
  return {call(ops::table::dispatch, {dx, rows, choices, gates})[0], Tensor(), Tensor(),
          gates ? call(ops::table::combine_grad_gates, {y, rows, dx})[0] : Tensor()};
}

Tensor ops::experts_in(const Tensor& x, const Tensor& offsets, const Tensor& wi_0,
                       const Tensor& wi_1, const std::vector<std::string>& activations) {
  const bool gated = !wi_1.absent(), keep = ExecutionContext::current().tape != nullptr;
  Attrs attrs{{"x", experts_of(offsets)}};
  Gate::of("experts_in", activations, gated).add_to(attrs);
  return call(table::experts_in, {x, offsets, wi_0, wi_1}, attrs, {true, keep, keep && gated})[0];
}

Tensors experts_in_vjp(const Node& node, const Tensors& grads) {
  const auto in = inputs_of<rules::experts_in>(node.inputs);
  const auto saved = results_of<rules::experts_in>(node.outputs);
  const Tensor &wi_0 = in["wi_0"], &wi_1 = in["wi_1"];
  Tensors operands = node.inputs;
  operands.insert(operands.end(),
                  {saved["h0"], saved["h1"], results_of<rules::experts_in>(grads)["y"]});
  const Tensors outputs = gradients({in["x"], wi_0, wi_1}, ops::table::experts_in_grad, operands,
                                    node.attrs, {true, true, !wi_1.absent()});
  const auto d = results_of<rules::experts_in_grad>(outputs);
  return {d["dx"], Tensor(), d["dwi_0"], d["dwi_1"]};
}

// Costs of packed rows: each goes through one expert.

Cost experts_in_cost(Views in, Views out) {
  const auto operands = inputs_of<rules::experts_in>(in);
  return {.flops = 2 * elements(operands["x"]) * size(results_of<rules::experts_in>(out)["y"], -1) *
                   (1 + count(operands["wi_1"]))};
}

Cost experts_in_grad_cost(Views in, Views out) {
  const auto operands = inputs_of<rules::experts_in_grad>(in);
  const auto results = results_of<rules::experts_in_grad>(out);
  return {.flops = 2 * elements(operands["x"]) * size(operands["h0"], -1) *
                   (1 + count(operands["wi_1"])) *
                   (count(results["dx"]) + count(results["dwi_0"]))};
}

Cost grouped_matmul_cost(Views in, Views out) {
  return {.flops = 2 * elements(inputs_of<rules::grouped_matmul>(in)["x"]) *
                   size(results_of<rules::grouped_matmul>(out)["y"], -1)};
}

Cost grouped_matmul_grad_w_cost(Views in, Views) {
  const auto operands = inputs_of<rules::grouped_matmul_grad_w>(in);
  return {.flops = 2 * elements(operands["x"]) * size(operands["dy"], -1)};
}

Tensor ops::grouped_matmul(const Tensor& x, const Tensor& offsets, const Tensor& w) {
  return call(table::grouped_matmul, {x, offsets, w}, {{"x", experts_of(offsets)}})[0];
}

Tensors grouped_matmul_vjp(const Node& node, const Tensors& grads) {
  const auto in = inputs_of<rules::grouped_matmul>(node.inputs);
  const Tensor &x = in["x"], &offsets = in["offsets"], &w = in["w"];
  const Tensor& dy = results_of<rules::grouped_matmul>(grads)["y"];
  return {call(ops::table::grouped_matmul_t, {dy, offsets, w}, node.attrs)[0], Tensor(),
          parameter_gradient(w, ops::table::grouped_matmul_grad_w, {x, offsets, dy}, node.attrs)};
}

Tensor ops::experts_dropout(const Tensor& x, const Tensor& offsets, const Dropout& dropout) {
  if (dropout.rate == 0) return x;
  Attrs attrs{{"x", experts_of(offsets)},
              {"rate", dropout.rate},
              {"key0", static_cast<int64_t>(dropout.key.a)},
              {"key1", static_cast<int64_t>(dropout.key.b)}};
  if (dropout.fold) attrs.set("fold", static_cast<int64_t>(*dropout.fold));
  return call(table::experts_dropout, {x, offsets}, attrs)[0];
}

Tensors experts_dropout_vjp(const Node& node, const Tensors& grads) {
  const Tensor& offsets = inputs_of<rules::experts_dropout>(node.inputs)["offsets"];
  return {call(ops::table::experts_dropout, {grads[0], offsets}, node.attrs)[0], Tensor()};
}

Tensor ops::mask_tokens(const Tensor& x, const Tensor& mask) {
  return call(table::mask_tokens, {x, mask})[0];
}

Tensors mask_tokens_vjp(const Node& node, const Tensors& grads) {
  const Tensor& mask = inputs_of<rules::mask_tokens>(node.inputs)["mask"];
  return {call(ops::table::mask_tokens, {grads[0], mask})[0], Tensor()};
}

}  // namespace quintet
