#include "kernels/mlp/mlp.h"
#include "runtime/ops.h"
#include "runtime/row_exchange.h"
#include "runtime/tape.h"

namespace quintet {
namespace {

/// Of offsets, of all experts or of a rank's: of all.
int64_t experts_of(const Tensor& offsets) {
  const int64_t own = offsets.block().sizes[1];
  return offsets.size(1) / own * (own - 1);
}

}  // namespace

ops::Routed ops::route(const Tensor& x, const Tensor& w, const RouteOptions& o) {
  const int64_t batch = x.frame().sizes[0], length = x.size(1), experts = w.size(1);
  const int64_t own = x.block().sizes[0];
  QT_CHECK(
      own == batch || (own * length % o.group_size == 0 && o.padded_batch == 0),
      "route: {} of the batch's {} rows of {} tokens are on a rank, which does not make whole "
      "groups "
      "of {} tokens{}; take a larger batch, a smaller max_group_size or fewer ranks over the batch",
      own, batch, length, o.group_size, o.padded_batch == 0 ? "" : " with the padding they need");
  const bool by_experts = o.router == Router::experts_choose;
  const int64_t choices = by_experts ? experts : o.num_selected_experts;
  // The most rows that can be served, shared out over the rows of the batch.
  const int64_t slots = o.groups * experts * std::min(o.capacity, o.group_size);
  const int64_t rows =
      by_experts ? (slots + batch - 1) / std::max<int64_t>(batch, 1) : length * choices;
  const Tensors out = call(table::route, {x, w},
                           {{"router", static_cast<int64_t>(o.router)},
                            {"k", choices},
                            {"capacity", o.capacity},
                            {"group_size", o.group_size},
                            {"groups", o.groups},
                            {"batch_priority", o.batch_priority},
                            {"ignore_padding", o.ignore_padding},
                            {"n", rows},
                            {"s", experts + 1},
                            {"c", int64_t{5}},
                            {"padded_batch", o.padded_batch},
                            {"padded_length", o.padded_length},
                            {"jitter", o.jitter},
                            {"key0", static_cast<int64_t>(o.jitter_key.a)},
                            {"key1", static_cast<int64_t>(o.jitter_key.b)}});
  // Of one expert of a rank's tokens; nobody counts them where tokens are padded to whole groups.
  const int64_t places =
      o.padded_batch == 0 ? own * length / o.group_size * std::min(o.capacity, o.group_size) : 0;
  const auto exchange = RowExchange::of(out[6], out[5], experts, places);
  return {.gates = out[0],
          .auxiliary_loss = out[2],
          .z_loss = out[3],
          .rows = out[4],
          .choices = out[5],
          .offsets = exchange == nullptr ? out[6] : exchange->offsets(),
          .experts = out[7],
          .positions = out[8],
          .counts = out[9],
          .load = out[10],
          .exchange = exchange};
}

Tensors route_vjp(const Node& node, const Tensors& grads) {
  const Tensors d = call(ops::table::route_grad,
                         {node.inputs[0], node.inputs[1], node.outputs[1], node.outputs[7],
                          node.outputs[0], grads[0], grads[2], grads[3]},
                         node.attrs);
  return {d[0], d[1]};
}

Tensor ops::dispatch(const Tensor& x, const Routed& routed) {
  return to_experts(call(table::dispatch, {x, routed.rows, routed.choices, Tensor()})[0],
                    routed.exchange);
}

Tensors dispatch_vjp(const Node& node, const Tensors& grads) {
  return {call(ops::table::combine, {grads[0], node.inputs[1], node.inputs[2], Tensor()})[0],
          Tensor(), Tensor(), Tensor()};
}

Tensor ops::combine(const Tensor& y, const Routed& routed) {
  return call(table::combine,
              {from_experts(y, routed.exchange), routed.rows, routed.choices, routed.gates})[0];
}

Tensors combine_vjp(const Node& node, const Tensors& grads) {
  const Tensor &y = node.inputs[0], &rows = node.inputs[1], &choices = node.inputs[2];
  const Tensor& gates = node.inputs[3];
  return {call(ops::table::dispatch, {grads[0], rows, choices, gates})[0], Tensor(), Tensor(),
          gates ? call(ops::table::combine_grad_gates, {y, rows, grads[0]})[0] : Tensor()};
}

Tensor ops::experts_in(const Tensor& x, const Tensor& offsets, const Tensor& wi_0,
                       const Tensor& wi_1, const std::vector<std::string>& activations) {
  const bool gated = !wi_1.absent(), keep = Tape::current() != nullptr;
  Attrs attrs{{"x", experts_of(offsets)}};
  Gate::of("experts_in", activations, gated).add_to(attrs);
  return call(table::experts_in, {x, offsets, wi_0, wi_1}, attrs, {true, keep, keep && gated})[0];
}

Tensors experts_in_vjp(const Node& node, const Tensors& grads) {
  const bool gated = !node.inputs[3].absent();
  const Tensors d = call(ops::table::experts_in_grad,
                         {node.inputs[0], node.inputs[1], node.inputs[2], node.inputs[3],
                          node.outputs[1], node.outputs[2], grads[0]},
                         node.attrs, {true, true, gated});
  return {d[0], Tensor(), d[1], d[2]};
}

Tensor ops::grouped_matmul(const Tensor& x, const Tensor& offsets, const Tensor& w) {
  return call(table::grouped_matmul, {x, offsets, w}, {{"x", experts_of(offsets)}})[0];
}

Tensors grouped_matmul_vjp(const Node& node, const Tensors& grads) {
  const Tensor &x = node.inputs[0], &offsets = node.inputs[1], &w = node.inputs[2];
  return {
      call(ops::table::grouped_matmul_t, {grads[0], offsets, w}, node.attrs)[0], Tensor(),
      parameter_gradient(w, ops::table::grouped_matmul_grad_w, {x, offsets, grads[0]}, node.attrs)};
}

Tensor ops::experts_dropout(const Tensor& x, const Tensor& offsets, const Dropout& dropout) {
  if (dropout.rate == 0) return x;
  return call(table::experts_dropout, {x, offsets},
              {{"x", experts_of(offsets)},
               {"rate", dropout.rate},
               {"key0", static_cast<int64_t>(dropout.key.a)},
               {"key1", static_cast<int64_t>(dropout.key.b)}})[0];
}

Tensors experts_dropout_vjp(const Node& node, const Tensors& grads) {
  return {call(ops::table::experts_dropout, {grads[0], node.inputs[1]}, node.attrs)[0], Tensor()};
}

Tensor ops::mask_tokens(const Tensor& x, const Tensor& mask) {
  return call(table::mask_tokens, {x, mask})[0];
}

Tensors mask_tokens_vjp(const Node& node, const Tensors& grads) {
  return {call(ops::table::mask_tokens, {grads[0], node.inputs[1]})[0], Tensor()};
}

}  // namespace quintet
