// Matrix products: plain triple loops, shapes from 0 to larger than a cache block.

#include "kernels/matmul/matmul.h"
#include "tests/ops/harness.h"

namespace quintet::testing {
namespace {

// out[i, j] = sum over l of a(i, l) b(l, j), for any storage order of a and b.
template <typename A, typename B>
void product(int64_t m, int64_t n, int64_t k, const A& a, const B& b, Array& out) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l) sum += a(i, l) * b(l, j);
      out[i * n + j] = sum;
    }
}

void matmul_oracle(const Arrays& in, Arrays& out, const Attrs&) {
  const Array &x = in[0], &w = in[1];
  const int64_t k = x.depth(), n = w.size(1);
  product(
      x.rows(), n, k, [&](int64_t i, int64_t l) { return x[i * k + l]; },
      [&](int64_t l, int64_t j) { return w[l * n + j]; }, out[0]);
}

void matmul_t_oracle(const Arrays& in, Arrays& out, const Attrs&) {
  const Array &x = in[0], &w = in[1];
  const int64_t k = x.depth(), n = w.size(0);
  product(
      x.rows(), n, k, [&](int64_t i, int64_t l) { return x[i * k + l]; },
      [&](int64_t l, int64_t j) { return w[j * k + l]; }, out[0]);
}

void grad_w_oracle(const Arrays& in, Arrays& out, const Attrs&) {
  const Array &x = in[0], &dy = in[1];
  const int64_t k = x.depth(), n = dy.depth();
  product(
      k, n, x.rows(), [&](int64_t i, int64_t l) { return x[l * k + i]; },
      [&](int64_t l, int64_t j) { return dy[l * n + j]; }, out[0]);
}

Shape with_depth(Shape leading, int64_t depth) {
  leading.push_back(depth);
  return leading;
}

void add_cases(std::vector<OpCase>& cases, const Shape& leading, int64_t k, int64_t n,
               bool only_bench = false) {
  int64_t rows = 1;
  for (int64_t s : leading) rows *= s;
  const std::string shape = fmt::format("{}/{}x{}x{}", leading.size(), rows, n, k);
  const Shape x = with_depth(leading, k), y = with_depth(leading, n);
  OpCase c{.name = "matmul/" + shape, .kernel = matmul_cpu};
  c.flops = 2.0 * static_cast<double>(rows * k * n);
  c.bytes = 4.0 * static_cast<double>(rows * k + k * n + rows * n);
  c.only_bench = only_bench;
  c.inputs = {normal(x), normal({k, n})};
  c.outputs = {result(y)};
  c.oracle = matmul_oracle;
  c.grads = {{matmul_t_cpu, {cotangent(0), input(1)}, {0}},
             {matmul_grad_w_cpu, {input(0), cotangent(0)}, {1}}};
  c.adds = {0};
  cases.push_back(c);
  c.name = "matmul_t/" + shape;
  c.kernel = matmul_t_cpu;
  c.inputs = {normal(x), normal({n, k})};
  c.oracle = matmul_t_oracle;
  c.grads = {{matmul_cpu, {cotangent(0), input(1)}, {0}},
             {matmul_grad_w_cpu, {cotangent(0), input(0)}, {1}}};
  cases.push_back(c);
  c.name = "matmul_grad_w/" + shape;
  c.kernel = matmul_grad_w_cpu;
  c.inputs = {normal(x), normal(y)};
  c.outputs = {result({k, n})};
  c.oracle = grad_w_oracle;
  c.grads = {};
  cases.push_back(c);
}

void batched_oracle(const Arrays& in, Arrays& out, const Attrs& attrs) {
  for (size_t i = 0; i < out.size(); ++i) {
    Arrays y{out[i]};
    if (!out[i].absent) matmul_oracle({in[0], in[1 + i]}, y, attrs);
    out[i] = y[0];
  }
}

void batched_grad_x_oracle(const Arrays& in, Arrays& out, const Attrs& attrs) {
  Arrays dx = out;
  for (double& sum : out[0].values) sum = 0;
  for (size_t i = 0; i < 3; ++i) {
    if (in[i].absent) continue;
    matmul_t_oracle({in[3 + i], in[i]}, dx, attrs);
    for (int64_t at = 0; at < std::ssize(dx[0].values); ++at) out[0][at] += dx[0][at];
  }
}

void batched_grad_w_oracle(const Arrays& in, Arrays& out, const Attrs& attrs) {
  for (size_t i = 0; i < out.size(); ++i) {
    Arrays dw{out[i]};
    if (!out[i].absent) grad_w_oracle({in[0], in[1 + i]}, dw, attrs);
    out[i] = dw[0];
  }
}

void add_batched_cases(std::vector<OpCase>& cases, int64_t rows, int64_t k, int64_t n, int count) {
  const std::string shape = fmt::format("{}x{}x{}x{}", count, rows, n, k);
  const Operand x = normal({rows, k}), w = normal({k, n}), dy = normal({rows, n});
  const bool is_third = count == 3;
  const auto operand = [&](const Operand& third) { return is_third ? third : no_operand(); };
  OpCase c{.name = "batched_matmul/" + shape, .kernel = batched_matmul_cpu};
  c.inputs = {x, w, w, operand(w)};
  c.outputs = {result({rows, n}), result({rows, n}), is_third ? result({rows, n}) : no_result()};
  c.oracle = batched_oracle;
  const Source third = is_third ? cotangent(2) : none();
  c.grads = {{batched_matmul_grad_x_cpu,
              {input(1), input(2), input(3), cotangent(0), cotangent(1), third},
              {0}},
             {batched_matmul_grad_w_cpu,
              {input(0), cotangent(0), cotangent(1), third},
              {1, 2, is_third ? 3 : -1}}};
  cases.push_back(c);
  c.grads = {};
  c.name = "batched_matmul_grad_x/" + shape;
  c.kernel = batched_matmul_grad_x_cpu;
  c.inputs = {w, w, operand(w), dy, dy, operand(dy)};
  c.outputs = {result({rows, k})};
  c.oracle = batched_grad_x_oracle;
  c.adds = {0};
  cases.push_back(c);
  c.name = "batched_matmul_grad_w/" + shape;
  c.kernel = batched_matmul_grad_w_cpu;
  c.inputs = {x, dy, dy, operand(dy)};
  c.outputs = {result({k, n}), result({k, n}), is_third ? result({k, n}) : no_result()};
  c.oracle = batched_grad_w_oracle;
  c.adds = {0, 1, 2};
  cases.push_back(c);
}

}  // namespace

std::vector<OpCase> matmul_cases() {
  std::vector<OpCase> cases;
  add_batched_cases(cases, 6, 5, 7, 3);
  add_batched_cases(cases, 33, 17, 24, 2);
  add_batched_cases(cases, 0, 5, 3, 3);  // no rows: empty results, zero gradients
  add_batched_cases(cases, 4, 0, 3, 3);
  add_cases(cases, {2, 3}, 5, 7);
  add_cases(cases, {}, 4, 3);  // a single vector, no leading axes
  add_cases(cases, {1}, 1, 1);
  add_cases(cases, {0}, 5, 3);  // no rows: an empty result, a zero gradient
  add_cases(cases, {4}, 0, 3);  // an empty sum
  add_cases(cases, {3, 2}, 4, 0);
  add_cases(cases, {2, 2, 9}, 33, 17);
  add_cases(cases, {67}, 129, 65);
  add_cases(cases, {1030}, 9, 10);  // more rows than weight gradients take at a time
  // T5 1.1 small, 8 x (256 -> 64): attention, MLP and logits products; decoding.
  add_cases(cases, {8, 256}, 512, 384, true);
  add_cases(cases, {8, 256}, 384, 512, true);
  add_cases(cases, {8, 256}, 512, 1024, true);
  add_cases(cases, {8, 256}, 1024, 512, true);
  add_cases(cases, {8, 64}, 512, 1024, true);
  add_cases(cases, {8, 64}, 1024, 512, true);
  add_cases(cases, {8, 64}, 512, 32128, true);
  add_cases(cases, {8, 64}, 32128, 512, true);
  add_cases(cases, {8}, 512, 1024, true);
  add_cases(cases, {8}, 512, 32128, true);
  return cases;
}

}  // namespace quintet::testing
