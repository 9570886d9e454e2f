// Sums and multiples. Sums with dropout are among the dropout cases.

#include "kernels/elementwise/elementwise.h"
#include "tests/ops/harness.h"

namespace quintet::testing {
namespace {

void add_oracle(const Arrays& in, Arrays& out, const Attrs&) {
  for (size_t i = 0; i < out[0].values.size(); ++i)
    out[0].values[i] = in[0].values[i] + in[1].values[i];
}

void scale_oracle(const Arrays& in, Arrays& out, const Attrs& attrs) {
  for (size_t i = 0; i < out[0].values.size(); ++i)
    out[0].values[i] = attrs.get<double>("factor") * in[0].values[i];
}

void add_cases(std::vector<OpCase>& cases, const Shape& shape, bool only_bench = false) {
  double elements = 1;
  std::string name;
  for (int64_t s : shape) {
    elements *= static_cast<double>(s);
    name += fmt::format("{}{}", name.empty() ? "" : "x", s);
  }
  OpCase add{.name = "add/" + name, .kernel = add_cpu};
  add.inputs = {normal(shape), normal(shape)};
  add.outputs = {result(shape)};
  add.oracle = add_oracle;
  add.tolerance = 2e-7;
  add.only_bench = only_bench;
  add.bytes = 12 * elements;
  cases.push_back(add);
  OpCase scale{.name = "scale/" + name, .kernel = scale_cpu};
  scale.inputs = {normal(shape)};
  scale.outputs = {result(shape)};
  scale.attrs = {{"factor", 0.044194173824159216}};  // 1 / sqrt(512), as tied logits use
  scale.oracle = scale_oracle;
  scale.tolerance = 2e-7;
  scale.grads = {{scale_cpu, {cotangent(0)}, {0}}};
  scale.only_bench = only_bench;
  scale.bytes = 8 * elements;
  cases.push_back(scale);
}

}  // namespace

std::vector<OpCase> elementwise_cases() {
  std::vector<OpCase> cases;
  add_cases(cases, {2, 3, 5});
  add_cases(cases, {});  // a scalar
  add_cases(cases, {1});
  add_cases(cases, {0, 4});
  add_cases(cases, {3, 47000});  // several threads, odd parts
  add_cases(cases, {8, 256, 512}, true);
  add_cases(cases, {8, 256, 1024}, true);
  return cases;
}

}  // namespace quintet::testing
