#include <algorithm>

#include "runtime/execution/tape.h"
#include "runtime/mesh/sharding.h"
#include "runtime/ops/cost.h"
#include "runtime/ops/names.h"
#include "runtime/ops/ops.h"
#include "runtime/tensor/batched.h"

namespace quintet {

Tensor ops::matmul(const Tensor& x, const Tensor& w) { return call(table::matmul, {x, w})[0]; }

namespace {

bool shards_experts() {
  const Sharding* sharding = ExecutionContext::current().sharding;
  return sharding != nullptr && sharding->place({{{axis::kExpert, 1}}}).sharded();
}

constexpr size_t kBatched = 3;  // weights of a call, at most

/// Whether ranks have x by rows alone: all of each.
bool has_whole_rows(const Tensor& x) {
  const Sharding* sharding = ExecutionContext::current().sharding;
  if (sharding == nullptr) return true;
  const MeshAxes rows = sharding->row_axes();
  return std::ranges::all_of(x.layout().dims, [&rows](const MeshAxes& axes) {
    return std::ranges::all_of(axes, [&rows](const std::string& axis) {
      return std::ranges::find(rows, axis) != rows.end();
    });
  });
}

/// How many of `w`, from number `first` on, are one call. Where ranks exchange experts' rows, they hide that behind
/// gradients of single weights.
size_t batched_from(size_t first, const Tensor& x, const Tensors& w) {
  if (!batches_products(Device::current()) || !is_multiplied_as_placed(w[first].layout()) ||
      !has_whole_rows(x) || shards_experts())
    return 1;
  size_t end = first + 1;
  while (end < w.size() && end - first < kBatched && w[end].spec() == w[first].spec() &&
         w[end].needs_grad() == w[first].needs_grad())
    ++end;
  return end - first;
}

}  // namespace

Tensors ops::matmul(const Tensor& x, const Tensors& w) {
  Tensors y;
  for (size_t i = 0, count = 0; i < w.size(); i += count) {
    count = batched_from(i, x, w);
    if (count == 1) {
      y.push_back(matmul(x, w[i]));
      continue;
    }
    const Tensor third = count == kBatched ? w[i + 2] : Tensor();
    const Tensors made =
        call(table::batched_matmul, {x, w[i], w[i + 1], third}, {}, {true, true, !third.absent()});
    y.insert(y.end(), made.begin(), made.begin() + static_cast<std::ptrdiff_t>(count));
  }
  return y;
}

Tensor ops::matmul_t(const Tensor& x, const Tensor& w) { return call(table::matmul_t, {x, w})[0]; }

Tensors matmul_vjp(const Node& node, const Tensors& grads) {
  const auto in = inputs_of<rules::matmul>(node.inputs);
  const Tensor &x = in["x"], &w = in["w"], &dy = results_of<rules::matmul>(grads)["y"];
  return {x.needs_grad() ? gradients({x}, ops::table::matmul_t, {dy, w})[0] : Tensor(),
          w.needs_grad() ? parameter_gradient(w, ops::table::matmul_grad_w, {x, dy}) : Tensor()};
}

Tensors matmul_t_vjp(const Node& node, const Tensors& grads) {
  const auto in = inputs_of<rules::matmul_t>(node.inputs);
  const Tensor &x = in["x"], &w = in["w"], &dy = results_of<rules::matmul_t>(grads)["y"];
  return {x.needs_grad() ? gradients({x}, ops::table::matmul, {dy, w})[0] : Tensor(),
          w.needs_grad() ? parameter_gradient(w, ops::table::matmul_grad_w, {dy, x}) : Tensor()};
}

Tensors batched_matmul_vjp(const Node& node, const Tensors& grads) {
  const auto in = inputs_of<rules::batched_matmul>(node.inputs);
  const Tensor &x = in["x"], &w_0 = in["w_0"], &w_1 = in["w_1"], &w_2 = in["w_2"];
  Tensors dy = grads;
  for (size_t i = 0; i < dy.size(); ++i)  // of one that nobody used, zeros
    if (dy[i].absent() && node.outputs[i]) dy[i] = ops::scale(node.outputs[i].detach(), 0);
  Tensors d(node.inputs.size());
  if (x.needs_grad())
    d[0] =
        gradients({x}, ops::table::batched_matmul_grad_x, {w_0, w_1, w_2, dy[0], dy[1], dy[2]})[0];
  if (w_0.needs_grad())
    std::ranges::move(
        parameter_gradients({w_0, w_1, w_2}, ops::table::batched_matmul_grad_w,
                            {x, dy[0], dy[1], dy[2]}, {}, {true, true, !w_2.absent()}),
        d.begin() + 1);
  return d;
}

Cost matmul_cost(Views in, Views out) {
  return {.flops = 2 * elements(inputs_of<rules::matmul>(in)["x"]) *
                   size(results_of<rules::matmul>(out)["y"], -1)};
}

Cost matmul_grad_w_cost(Views in, Views) {
  const auto operands = inputs_of<rules::matmul_grad_w>(in);
  return {.flops = 2 * elements(operands["x"]) * size(operands["dy"], -1)};
}

// As the product with one matrix, of all columns.
Cost batched_matmul_cost(Views in, Views) {
  const auto operands = inputs_of<rules::batched_matmul>(in);
  return {.flops = 2 * elements(operands["x"]) * size(operands["w_0"], -1) *
                   (2 + count(operands["w_2"]))};
}

Cost batched_matmul_grad_x_cost(Views in, Views) {
  const auto operands = inputs_of<rules::batched_matmul_grad_x>(in);
  return {.flops = 2 * elements(operands["dy_0"]) * size(operands["w_0"], 0) *
                   (2 + count(operands["w_2"]))};
}

Cost batched_matmul_grad_w_cost(Views in, Views) {
  const auto operands = inputs_of<rules::batched_matmul_grad_w>(in);
  return {.flops = 2 * elements(operands["x"]) * size(operands["dy_0"], -1) *
                   (2 + count(operands["dy_2"]))};
}

}  // namespace quintet
