// The first half of the MLP: every activation, gated or not, products kept or computed again.

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "kernels/mlp/mlp.h"
#include "tests/ops/harness.h"

namespace quintet::testing {
namespace {

double activate(Activation act, double x) {
  switch (act) {
    case Activation::linear:
      return x;
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::gelu:
      return 0.5 * x *
             (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::silu:
      return x / (1 + std::exp(-x));
  }
  return std::nan("");
}

void mlp_oracle(const Arrays& in, Arrays& out, const Attrs& attrs) {
  const Array& x = in[0];
  const int64_t e = x.depth(), f = in[1].size(1);
  for (int64_t row = 0; row < x.rows(); ++row)
    for (int64_t j = 0; j < f; ++j) {
      double y = 1;
      for (size_t branch = 0; branch < (in[2].absent ? 1u : 2u); ++branch) {
        double h = 0;
        for (int64_t i = 0; i < e; ++i) h += x[row * e + i] * in[1 + branch][i * f + j];
        if (!out[1 + branch].absent) out[1 + branch][row * f + j] = h;
        y *=
            activate(static_cast<Activation>(attrs.get<int64_t>(branch == 0 ? "act0" : "act1")), h);
      }
      out[0][row * f + j] = y;
    }
}

struct Settings {
  Shape leading;
  int64_t e, f;
  Activation act0, act1 = Activation::linear;
  bool is_gated = true, keeps_products = true;
};

Shape with_depth(Shape leading, int64_t depth) {
  leading.push_back(depth);
  return leading;
}

OpCase mlp_case(const Settings& s) {
  int64_t rows = 1;
  for (int64_t size : s.leading) rows *= size;
  std::string name = fmt::format("mlp_in/{}", name_of(s.act0));
  if (s.is_gated) name += fmt::format("_{}", name_of(s.act1));
  name += fmt::format("/{}x{}x{}{}", rows, s.f, s.e, s.keeps_products ? "" : "/not_kept");
  OpCase c{.name = name, .kernel = mlp_in_cpu};
  const Operand w = normal({s.e, s.f}, 1 / std::sqrt(static_cast<double>(s.e)));
  const Shape hidden = with_depth(s.leading, s.f);
  c.inputs = {normal(with_depth(s.leading, s.e)), w, s.is_gated ? w : no_operand()};
  c.outputs = {result(hidden), s.keeps_products ? result(hidden) : no_result(),
               s.keeps_products && s.is_gated ? result(hidden) : no_result()};
  c.attrs = {{"act0", static_cast<int64_t>(s.act0)}, {"act1", static_cast<int64_t>(s.act1)}};
  c.oracle = mlp_oracle;
  c.grads = {{mlp_in_grad_cpu,
              {input(0), input(1), input(2), output(1), output(2), cotangent(0)},
              {0, 1, s.is_gated ? 2 : -1}}};
  c.flops = 2.0 * static_cast<double>(rows * s.e * s.f) * (s.is_gated ? 2 : 1);
  return c;
}

// The T5 1.1 small step; backward is twice the arithmetic.
void add_bench(std::vector<OpCase>& cases, const Settings& s) {
  OpCase c = mlp_case(s);
  c.only_bench = true;
  cases.push_back(c);
  c.name.replace(0, std::string("mlp_in").size(), "mlp_in_grad");
  c.kernel = mlp_in_grad_cpu;
  const Operand h = s.keeps_products ? normal(with_depth(s.leading, s.f)) : no_operand();
  c.inputs.push_back(h);
  c.inputs.push_back(h);
  c.inputs.push_back(normal(with_depth(s.leading, s.f)));
  c.outputs = {result(c.inputs[0].shape), result(c.inputs[1].shape), result(c.inputs[2].shape)};
  c.flops *= s.keeps_products ? 2 : 3;
  cases.push_back(c);
}

}  // namespace

std::vector<OpCase> mlp_cases() {
  using enum Activation;
  std::vector<OpCase> cases;
  for (Activation act : {linear, relu, gelu, silu})
    for (bool keeps : {true, false}) {
      cases.push_back(mlp_case({.leading = {2, 3},
                                .e = 5,
                                .f = 19,
                                .act0 = act,
                                .is_gated = false,
                                .keeps_products = keeps}));
      cases.push_back(mlp_case(
          {.leading = {7}, .e = 4, .f = 9, .act0 = act, .act1 = linear, .keeps_products = keeps}));
    }
  cases.push_back(mlp_case({.leading = {3}, .e = 6, .f = 17, .act0 = silu, .act1 = gelu}));
  cases.push_back(mlp_case({.leading = {}, .e = 3, .f = 1, .act0 = gelu}));
  cases.push_back(mlp_case({.leading = {0, 2}, .e = 3, .f = 4, .act0 = gelu}));
  // More rows than a chunk, and not a multiple of one.
  cases.push_back(mlp_case({.leading = {9, 257}, .e = 3, .f = 5, .act0 = gelu}));
  cases.push_back(
      mlp_case({.leading = {9, 257}, .e = 3, .f = 5, .act0 = gelu, .keeps_products = false}));
  // Rows, terms and columns that fill and cross the tiles of a GPU's tensor cores.
  cases.push_back(mlp_case({.leading = {131}, .e = 72, .f = 136, .act0 = gelu}));
  cases.push_back(
      mlp_case({.leading = {2, 130}, .e = 24, .f = 264, .act0 = silu, .keeps_products = false}));
  cases.push_back(mlp_case({.leading = {128}, .e = 264, .f = 16, .act0 = relu, .is_gated = false}));
  add_bench(cases, {.leading = {8, 256}, .e = 512, .f = 1024, .act0 = gelu});
  add_bench(cases,
            {.leading = {8, 256}, .e = 512, .f = 1024, .act0 = gelu, .keeps_products = false});
  add_bench(cases, {.leading = {8, 64}, .e = 512, .f = 1024, .act0 = gelu});
  return cases;
}

// Value and slope of an activation at one point, through the ops.
struct Point {
  float value, slope;
};

Point point(Activation act, float at) {
  const std::vector<int64_t> shape{1, 1};
  std::vector<float> x{at}, w{1}, y{0}, dy{1}, dx{0}, dw{0};
  const Attrs attrs{{"act0", static_cast<int64_t>(act)}};
  const auto view = [&shape](std::vector<float>& v) { return View::of(v.data(), shape); };
  const View none = View::none();
  const std::vector<View> in{view(x), view(w), none}, out{view(y), none, none};
  mlp_in_cpu(in, out, attrs, {});
  const std::vector<View> grad_in{view(x), view(w), none, none, none, view(dy)};
  const std::vector<View> grad_out{view(dx), view(dw), none};
  mlp_in_grad_cpu(grad_in, grad_out, attrs, {});
  return {y[0], dx[0]};
}

// Large arguments: the exponential must not overflow into NaN.
TEST(Mlp, ActivationsAreFiniteFarFromZero) {
  for (Activation act : {Activation::gelu, Activation::silu})
    for (float at : {-1e4F, -200.0F, -90.0F, -20.0F, 20.0F, 90.0F, 200.0F, 1e4F}) {
      const Point p = point(act, at);
      EXPECT_NEAR(p.value, activate(act, static_cast<double>(at)), 1e-5) << name_of(act) << at;
      EXPECT_NEAR(p.slope, at > 0 ? 1 : 0, 1e-5) << name_of(act) << at;
    }
}

TEST(Mlp, ActivationsKeepNaN) {
  for (Activation act : {Activation::linear, Activation::relu, Activation::gelu, Activation::silu})
    EXPECT_TRUE(std::isnan(point(act, std::nanf("")).value)) << name_of(act);
}

// Values are within a few units in the last place of float: T5X's own are no closer.
TEST(Mlp, ActivationsAreAccurate) {
  for (Activation act : {Activation::gelu, Activation::silu})
    for (double at = -6; at < 6; at += 0.0371) {
      const auto x = static_cast<float>(at);
      const double want = activate(act, static_cast<double>(x));
      EXPECT_NEAR(point(act, x).value, want, 6e-7 * std::abs(want) + 1e-9) << name_of(act) << x;
    }
}

TEST(Mlp, ActivationsHaveT5XNames) {
  for (const char* name : {"linear", "relu", "gelu", "silu"})
    EXPECT_EQ(name_of(activation_from_name(name)), name);
  EXPECT_EQ(activation_from_name("swish"), Activation::silu);
  try {
    activation_from_name("gleu");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("gelu"), std::string::npos);
  }
}

}  // namespace quintet::testing
