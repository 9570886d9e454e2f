// Queries and keys turned by their positions.

#include <cmath>

#include "kernels/rotary/rotary.h"
#include "tests/ops/harness.h"

namespace quintet::testing {
namespace {

OpCase make_case(const std::string& name, const Shape& shape, int64_t heads, double max_timescale) {
  OpCase c{.name = "rotate/" + name, .kernel = rotate_cpu};
  c.inputs = {normal(shape), no_operand()};
  c.outputs = {result(shape)};
  c.attrs = {{"h", heads}, {"max_timescale", max_timescale}};
  c.oracle = [](const Arrays& in, Arrays& out, const Attrs& attrs) {
    const Array& x = in[0];
    const size_t columns = x.shape.size() - 1, tokens = columns - 1;
    const auto all_heads = attrs.get<int64_t>("h");
    const int64_t d = x.global[columns] / all_heads, depth = x.depth();
    for (int64_t i = 0; i < x.rows() * depth; ++i) {
      const int64_t j = i % d, row = i / depth;
      const int64_t head = (x.origin[columns] + i % depth) / d;
      if (head >= attrs.get_or<int64_t>("turned", all_heads)) {
        out[0][i] = x[i];
        continue;
      }
      const int64_t position = in[1].absent ? x.origin[tokens] + row % x.shape[tokens]
                                            : static_cast<int64_t>(in[1][row]);
      const double timescale =
          std::pow(attrs.get<double>("max_timescale"), 2.0 * double(j % (d / 2)) / double(d));
      const double angle = static_cast<double>(position) / timescale;
      const double other = j < d / 2 ? -x[i + d / 2] : x[i - d / 2];
      out[0][i] = x[i] * std::cos(angle) + other * std::sin(angle);
    }
  };
  c.grads = {{.kernel = rotate_grad_cpu, .operands = {cotangent(0), input(1)}, .results = {0}}};
  return c;
}

/// As a step of generation has them: rows at places of their own, of whose heads the last are values.
OpCase step_case() {
  OpCase c = make_case("step", {6, 40}, 5, 1e4);
  c.inputs[1] = integers({6}, 0, 300);
  c.attrs.set("turned", int64_t{4});
  return c;
}

/// Heads 1 and 2 of 4, of which so many are turned, of tokens 5 to 9 of 12.
OpCase block_case(int64_t turned) {
  OpCase c = make_case(fmt::format("block_{}", turned), {2, 5, 12}, 4, 100);
  c.attrs.set("turned", turned);
  const auto place = [](auto& view) {
    view.origin = {0, 5, 6};
    view.global = {2, 12, 24};
  };
  place(c.inputs[0]);
  place(c.outputs[0]);
  return c;
}

}  // namespace

std::vector<OpCase> rotary_cases() {
  std::vector<OpCase> cases{
      make_case("2x7_of_3_heads", {2, 7, 24}, 3, 1e4), make_case("one_head", {1, 6, 8}, 1, 500),
      make_case("pairs", {3, 4, 2}, 1, 1e4), make_case("empty", {0, 4, 8}, 2, 1e4), step_case()};
  for (const int64_t turned : {0, 2, 4}) cases.push_back(block_case(turned));
  cases.push_back(make_case("base", {8, 512, 768}, 12, 1e4));
  cases.back().only_bench = true;
  cases.back().bytes = 8.0 * 8 * 512 * 768;
  return cases;
}

}  // namespace quintet::testing
