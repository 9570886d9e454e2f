#include "runtime/execution/tape.h"
#include "runtime/ops/names.h"
#include "runtime/ops/ops.h"

namespace quintet {
namespace {

/// `widths`: of a head in each part.
Tensors split(const Tensor& x, int64_t num_heads, const std::array<int64_t, 3>& widths) {
  return call(ops::table::split_heads, {x},
              {{"h", num_heads}, {"p", widths[0]}, {"q", widths[1]}, {"r", widths[2]}},
              {true, true, widths[2] > 0});
}

}  // namespace

Tensors ops::split_heads(const Tensor& x, int64_t num_heads, const std::array<int64_t, 3>& widths) {
  QT_CHECK(x.size(-1) == num_heads * (widths[0] + widths[1] + widths[2]),
           "split_heads: {} columns are not {} heads of {}", x.size(-1), num_heads,
           fmt::join(widths, " + "));
  return split(x, num_heads, widths);
}

Tensors split_heads_vjp(const Node& node, const Tensors& grads) {
  const auto heads = node.attrs.get<int64_t>("h");
  Tensors parts = grads;
  for (size_t i = 0; i < parts.size(); ++i)  // what nothing reads
    if (parts[i].absent() && !node.outputs[i].absent())
      parts[i] = Tensor::zeros(node.outputs[i].spec());
  return call(ops::table::join_heads, parts,
              {{"h", heads}, {"n", node.inputs[0].size(-1) / heads}});
}

Tensor ops::join_heads(const Tensors& parts, int64_t num_heads) {
  int64_t columns = 0;
  for (const Tensor& part : parts) columns += part.size(-1);
  Tensors three = parts;
  three.resize(3);
  return call(table::join_heads, three, {{"h", num_heads}, {"n", columns / num_heads}})[0];
}

Tensors join_heads_vjp(const Node& node, const Tensors& grads) {
  const auto heads = node.attrs.get<int64_t>("h");
  std::array<int64_t, 3> widths{};
  for (size_t i = 0; i < widths.size(); ++i)
    widths[i] = node.inputs[i].absent() ? 0 : node.inputs[i].size(-1) / heads;
  return split(grads[0], heads, widths);
}

}  // namespace quintet
