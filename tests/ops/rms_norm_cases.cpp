// Root-mean-square norm, alone and with the residual sum before it.

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/dropout/dropout.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/rms_norm/rms_norm.h"
#include "tests/ops/buffers.h"
#include "tests/ops/dropout_oracle.h"

namespace quintet::testing {

std::vector<OpCase> rms_norm_cases();

namespace {

void norm(const Array& x, const Array& scale, Array& out, const Attrs& attrs) {
  const int64_t e = x.depth();
  for (int64_t row = 0; row < x.rows(); ++row) {
    double mean = 0;
    for (int64_t i = 0; i < e; ++i)
      mean += x[row * e + i] * x[row * e + i] / static_cast<double>(e);
    for (int64_t i = 0; i < e; ++i)
      out[row * e + i] = x[row * e + i] / std::sqrt(mean + attrs.get<double>("eps")) * scale[i];
  }
}

void rms_norm_oracle(const Arrays& in, Arrays& out, const Attrs& attrs) {
  norm(in[0], in[1], out[0], attrs);
}

void add_rms_norm_oracle(const Arrays& in, Arrays& out, const Attrs& attrs) {
  for (size_t i = 0; i < out[0].values.size(); ++i)
    out[0].values[i] =
        in[0].values[i] +
        (attrs.has("rate") ? dropped(in[1], static_cast<int64_t>(i), attrs) : in[1].values[i]);
  norm(out[0], in[2], out[1], attrs);
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
  c.grads = {{rms_norm_grad_cpu, {input(0), input(1), cotangent(0)}, {0, 1}, {}, {1}}};
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

constexpr double kNoDropout = 0;

/// `broadcast_dim`: of dropout.h. `origin`, `global`: of a block whose rows are whole.
OpCase add_norm_case(const Shape& shape, double rate, int64_t broadcast_dim = 0,
                     const Shape& origin = {}, const Shape& global = {}) {
  OpCase c{.name = "add_rms_norm/", .kernel = add_rms_norm_cpu};
  for (int64_t s : shape) c.name += fmt::format("{}{}", c.name.back() == '/' ? "" : "x", s);
  c.attrs = {{"eps", 1e-6}};
  if (rate != kNoDropout) {
    c.name += fmt::format("_{}{}{}", static_cast<int>(rate * 100),
                          broadcast_dim == 0 ? "" : "_shared", global.empty() ? "" : "_block");
    c.attrs.set("rate", rate);
    c.attrs.set("key0", int64_t{0x9e3779b9});
    c.attrs.set("key1", int64_t{0xf00dcafe});
    c.attrs.set("broadcast_dim", broadcast_dim);
  }
  Operand x = normal(shape);
  x.origin = origin, x.global = global;
  const Result like_x{.shape = shape, .origin = origin, .global = global};
  c.inputs = {x, x, normal({shape.back()})};
  c.outputs = {like_x, like_x};
  c.oracle = add_rms_norm_oracle;
  c.tolerance = 2e-6;
  c.grads = {{add_rms_norm_grad_cpu,
              {output(0), input(2), cotangent(1), cotangent(0)},
              {0, rate == kNoDropout ? -1 : 1, 2},
              {},
              {2}}};
  c.bytes = 16;
  for (int64_t s : shape) c.bytes *= static_cast<double>(s);
  return c;
}

OpCase add_norm_bench(const Shape& shape, double rate, bool backward) {
  OpCase c = add_norm_case(shape, rate, -2);
  c.only_bench = true;
  if (!backward) return c;
  c.name.replace(0, std::string("add_rms_norm").size(), "add_rms_norm_grad");
  c.kernel = add_rms_norm_grad_cpu;
  c.inputs = {c.inputs[0], c.inputs[2], c.inputs[0], c.inputs[0]};
  c.outputs = {c.outputs[0], rate == kNoDropout ? no_result() : c.outputs[0],
               result({shape.back()})};
  if (rate != kNoDropout) c.bytes *= 1.25;
  return c;
}

/// Random numbers, the same for the same seed.
std::vector<float> normals(size_t n, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values(n);
  for (float& v : values) v = static_cast<float>(std::normal_distribution<double>()(random));
  return values;
}

TEST(AddRmsNorm, IsTheSumAndTheNormBitForBit) {
  std::vector<OpCase> cases = rms_norm_cases();
  cases.push_back(add_norm_case({5, 60, 130}, 0.1, -2));  // several threads
  for (const OpCase& c : cases) {
    if (c.kernel != add_rms_norm_cpu || c.only_bench) continue;
    SCOPED_TRACE(c.name);
    const Prepared p = prepare(c, 0);
    const View shape = p.inputs[0].view(), gain = p.inputs[2].view();
    const auto n = static_cast<size_t>(shape.elements()),
               depth = static_cast<size_t>(shape.depth());
    const bool drops = c.attrs.has("rate");
    std::vector<float> x = normals(n, 1), y = normals(n, 2), scale = normals(depth, 3);
    std::vector<float> dout = normals(n, 4), dx_new = normals(n, 5), part(n);
    struct Made {
      std::vector<float> x_new, out, dx, dy, dscale;
      bool operator==(const Made&) const = default;
    };
    const Made room{x, x, x, x, scale};
    Made got = room, want = room;
    const auto as = [](std::vector<float>& values, View like) {
      like.pointer = values.data();
      return like;
    };
    const auto run = [&](Kernel kernel, std::vector<View> in, std::vector<View> out) {
      kernel(in, out, c.attrs, {});
    };
    run(add_rms_norm_cpu, {as(x, shape), as(y, shape), as(scale, gain)},
        {as(got.x_new, shape), as(got.out, shape)});
    run(add_rms_norm_grad_cpu,
        {as(got.x_new, shape), as(scale, gain), as(dout, shape), as(dx_new, shape)},
        {as(got.dx, shape), drops ? as(got.dy, shape) : View::none(), as(got.dscale, gain)});
    run(add_cpu, {as(x, shape), as(y, shape)}, {as(want.x_new, shape)});
    run(rms_norm_cpu, {as(want.x_new, shape), as(scale, gain)}, {as(want.out, shape)});
    run(rms_norm_grad_cpu, {as(want.x_new, shape), as(scale, gain), as(dout, shape)},
        {as(part, shape), as(want.dscale, gain)});
    for (size_t i = 0; i < n; ++i) want.dx[i] = dx_new[i] + part[i];
    if (drops) run(dropout_cpu, {as(want.dx, shape)}, {as(want.dy, shape)});
    EXPECT_TRUE(got == want);
  }
}

}  // namespace

std::vector<OpCase> rms_norm_cases() {
  return {add_norm_case({2, 3, 5}, kNoDropout),
          add_norm_case({7}, kNoDropout),
          add_norm_case({1, 1}, 0.5),
          add_norm_case({0, 2, 4}, kNoDropout),
          add_norm_case({0, 2, 4}, 0.5, -2),
          add_norm_case({17}, 0.5),
          add_norm_case({9, 16}, kNoDropout),
          add_norm_case({3, 5, 33}, 0.3),
          add_norm_case({3, 5, 33}, 0.3, -2),
          add_norm_case({2, 3, 5}, 0.4, 0, {4, 2, 0}, {7, 9, 5}),
          add_norm_case({2, 3, 40}, 0.4, -2, {4, 2, 0}, {7, 9, 40}),
          add_norm_case({300, 130}, kNoDropout),  // several threads
          add_norm_bench({8, 256, 512}, kNoDropout, false),
          add_norm_bench({8, 256, 512}, kNoDropout, true),
          add_norm_bench({8, 256, 512}, 0.1, false),
          add_norm_bench({8, 256, 512}, 0.1, true),
          norm_case({2, 3}, 5),
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
