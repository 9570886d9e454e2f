// Root-mean-square norm.

#include <cmath>

#include "kernels/rms_norm/rms_norm.h"
#include "tests/ops/harness.h"

namespace quintet::testing {
namespace {

void rms_norm_oracle(const Arrays& in, Arrays& out, const Attrs& attrs) {
  const Array &x = in[0], &scale = in[1];
  const int64_t e = x.depth();
  for (int64_t row = 0; row < x.rows(); ++row) {
    double mean = 0;
    for (int64_t i = 0; i < e; ++i)
      mean += x[row * e + i] * x[row * e + i] / static_cast<double>(e);
    for (int64_t i = 0; i < e; ++i)
      out[0][row * e + i] = x[row * e + i] / std::sqrt(mean + attrs.get<double>("eps")) * scale[i];
  }
}

OpCase norm_case(const Shape& leading, int64_t depth, double deviation = 1, double eps = 1e-6) {
  Shape x = leading;
  x.push_back(depth);
  std::string name = "rms_norm/";
  for (int64_t s : x) name += fmt::format("{}{}", name.back() == '/' ? "" : "x", s);
  if (deviation != 1) name += "_small";
  if (eps != 1e-6) name += "_eps";
  OpCase c{.name = name, .kernel = rms_norm_cpu};
  c.inputs = {normal(x, deviation), normal({depth})};
  c.outputs = {result(x)};
  c.attrs = {{"eps", eps}};
  c.oracle = rms_norm_oracle;
  c.tolerance = 2e-6;
  c.grads = {{rms_norm_grad_cpu, {input(0), input(1), cotangent(0)}, {0, 1}}};
  return c;
}

OpCase bench_case(const Shape& leading, int64_t depth) {
  OpCase c = norm_case(leading, depth);
  c.only_bench = true;
  c.bytes = 8;
  for (int64_t s : c.inputs[0].shape) c.bytes *= static_cast<double>(s);
  return c;
}

OpCase bench_grad_case(const Shape& leading, int64_t depth) {
  OpCase c = bench_case(leading, depth);
  c.name.replace(0, std::string("rms_norm").size(), "rms_norm_grad");
  c.kernel = rms_norm_grad_cpu;
  c.inputs.push_back(c.inputs[0]);
  c.outputs.push_back(result({depth}));
  c.bytes *= 1.5;
  return c;
}

}  // namespace

std::vector<OpCase> rms_norm_cases() {
  return {norm_case({2, 3}, 5),
          norm_case({}, 7),
          norm_case({1}, 1),
          norm_case({0, 2}, 4),
          norm_case({9}, 16),
          norm_case({3, 5}, 33),
          norm_case({300}, 130),           // several threads
          norm_case({4}, 24, 1e-3, 1e-3),  // eps outweighs the mean of squares
          bench_case({8, 256}, 512),
          bench_grad_case({8, 256}, 512),
          bench_case({8}, 512)};
}

}  // namespace quintet::testing
