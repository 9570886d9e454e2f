#include "kernels/fp8/fp8.h"

#include "runtime/execution/tape.h"
#include "runtime/ops/cost.h"
#include "runtime/ops/names.h"
#include "runtime/ops/ops.h"

namespace quintet {
namespace {

/// Of the weights that are there.
double layers_of(const View& w_1, const View& w_2) { return 1 + count(w_1) + count(w_2); }

/// Of x beside the operands: what a cast writes and the products read, a byte a number. Of two forms a pass reads one.
double bytes_of_x(const View& x, const View& transposed) {
  return x.dtype == DType::u8 ? -elements(x) * count(transposed) : 2 * elements(x);
}

/// The same of so many numbers like w. Where they are cast already they are not read, and of their two forms one is.
double bytes_of_w(const View& bytes, const View& w, double numbers) {
  return numbers * (bytes.absent() ? 2.0 : -1.0 - static_cast<double>(size_of(w.dtype)));
}

}  // namespace

Tensors ops::matmul_fp8(const DenseInput& x, const Tensors& w, const Tensor& w8,
                        const Fp8Scales& scales, Float8 gradient_format) {
  QT_ASSERT(!w.empty() && w.size() <= 3);
  const bool in_bytes = x.x.spec().dtype == DType::u8;
  QT_ASSERT(!in_bytes || x.x.raw() != nullptr);              // another product has had it
  QT_ASSERT(!in_bytes || x.x.layout().dims.back().empty());  // the transpose would be cut wrongly
  QT_ASSERT(w8.absent() || w8.spec().elements() == 2 * std::ssize(w) * w[0].spec().elements());
  const auto at = [&w](size_t i) { return i < w.size() ? w[i] : Tensor(); };
  Tensors y =
      call(table::matmul_fp8, {x.x, at(0), at(1), at(2), scales.scaling, x.transposed, w8},
           {{"layer", scales.layer}, {"gradient_format", static_cast<int64_t>(gradient_format)}},
           {true, w.size() > 1, w.size() > 2});
  if (in_bytes) x.x.release();
  y.resize(w.size());
  return y;
}

Tensors matmul_fp8_vjp(const Node& node, const Tensors& grads) {
  const auto in = inputs_of<rules::matmul_fp8>(node.inputs);
  QT_ASSERT(in["x"].spec().dtype != DType::u8 || !in["x_t"].absent());
  Tensors operands = node.inputs;
  for (size_t i = 0; i < grads.size(); ++i)  // of one that nobody used, zeros
    operands.push_back(!node.outputs[i].absent() && grads[i].absent()
                           ? ops::scale(node.outputs[i].detach(), 0)
                           : grads[i]);
  Tensors d =
      gradients({in["x"], in["w_0"], in["w_1"], in["w_2"]}, ops::table::matmul_fp8_grad, operands,
                node.attrs, {true, true, !in["w_1"].absent(), !in["w_2"].absent()});
  d.resize(node.inputs.size());  // none of scaling and bytes
  return d;
}

// Beside the operands: what casts write and products read.
Cost matmul_fp8_cost(Views in, Views) {
  const auto operands = inputs_of<rules::matmul_fp8>(in);
  const View& w = operands["w_0"];
  const double layers = layers_of(operands["w_1"], operands["w_2"]), x = elements(operands["x"]);
  return {.flops = 2 * x * size(w, -1) * layers,
          .bytes = bytes_of_x(operands["x"], operands["x_t"]) +
                   bytes_of_w(operands["w8"], w, elements(w) * layers)};
}

Cost matmul_fp8_grad_cost(Views in, Views) {
  const auto operands = inputs_of<rules::matmul_fp8_grad>(in);
  const View& w = operands["w_0"];
  const double layers = layers_of(operands["w_1"], operands["w_2"]), x = elements(operands["x"]);
  return {.flops = 4 * x * size(w, -1) * layers,
          .bytes = bytes_of_x(operands["x"], operands["x_t"]) +
                   bytes_of_w(operands["w8"], w, elements(w) * layers) +
                   4 * elements(operands["dy_0"]) * layers};
}

}  // namespace quintet
