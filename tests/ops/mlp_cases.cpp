// The MLP: every activation, gated or not, with and without dropout, products kept or not.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/ops/activation_oracle.h"
#include "tests/ops/dropout_oracle.h"
#include "tests/ops/harness.h"

namespace quintet::testing {
namespace {

/// An array of hidden units [..., f].
Array hidden_of(const Arrays& in) {
  const Array &x = in[0], &wi_0 = in[1];
  Array h = x;
  h.shape.back() = wi_0.shape[1], h.origin.back() = wi_0.origin[1],
  h.global.back() = wi_0.global[1];
  h.values.assign(static_cast<size_t>(h.rows() * h.depth()), 1);
  return h;
}
void drop(Array& h, const Attrs& attrs) {
  if (!attrs.has("rate")) return;
  for (int64_t i = 0; i < h.rows() * h.depth(); ++i) h[i] = dropped(h, i, attrs);
}

/// a b, or a b^T.
Array product(const Array& a, const Array& b, bool transposed = false) {
  Array c = a;
  const int64_t terms = a.depth(), columns = transposed ? b.size(0) : b.size(1);
  c.shape.back() = columns;
  c.values.assign(static_cast<size_t>(a.rows() * columns), 0);
  for (int64_t row = 0; row < a.rows(); ++row)
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t i = 0; i < terms; ++i)
        c[row * columns + j] +=
            a[row * terms + i] * (transposed ? b[j * terms + i] : b[i * columns + j]);
  return c;
}

/// y of mlp.h from the products h.
Array activated(const Arrays& in, const Arrays& h, const Attrs& attrs) {
  Array y = hidden_of(in);
  for (size_t branch = 0; branch < h.size(); ++branch)
    for (int64_t i = 0; i < y.rows() * y.depth(); ++i)
      y[i] *= activate(activation(attrs, branch), h[branch][i]);
  drop(y, attrs);
  return y;
}
Arrays products(const Arrays& in) {
  Arrays h{product(in[0], in[1])};
  if (!in[2].absent) h.push_back(product(in[0], in[2]));
  return h;
}

void mlp_in_oracle(const Arrays& in, Arrays& out, const Attrs& attrs) {
  out[0].values = activated(in, products(in), attrs).values;
}

void mlp_oracle(const Arrays& in, Arrays& out, const Attrs& attrs) {
  const Arrays h = products(in);
  out[0].values = product(activated(in, h, attrs), in[3]).values;
  for (size_t branch = 0; branch < h.size(); ++branch)
    if (!out[1 + branch].absent) out[1 + branch].values = h[branch].values;
}

void mlp_grad_oracle(const Arrays& in, Arrays& out, const Attrs& attrs) {
  const Array& x = in[0];
  Arrays h{in[4]};
  if (!in[5].absent) h.push_back(in[5]);
  Array dy = hidden_of(in);
  dy.values = product(in[6], in[3], true).values;
  drop(dy, attrs);
  std::fill(out[0].values.begin(), out[0].values.end(), 0);
  for (size_t branch = 0; branch < h.size(); ++branch) {
    Array d = dy;
    for (int64_t i = 0; i < d.rows() * d.depth(); ++i) {
      d[i] *= slope(activation(attrs, branch), h[branch][i]);
      if (h.size() > 1) d[i] *= activate(activation(attrs, 1 - branch), h[1 - branch][i]);
    }
    const Array dx = product(d, in[1 + branch], true);
    for (size_t i = 0; i < dx.values.size(); ++i) out[0].values[i] += dx.values[i];
    Array& dw = out[1 + branch];
    std::fill(dw.values.begin(), dw.values.end(), 0);
    for (int64_t row = 0; row < x.rows(); ++row)
      for (int64_t i = 0; i < x.depth(); ++i)
        for (int64_t j = 0; j < d.depth(); ++j)
          dw[i * d.depth() + j] += x[row * x.depth() + i] * d[row * d.depth() + j];
  }
  out[3].values = activated(in, h, attrs).values;
}

struct Settings {
  Shape leading;
  int64_t e, f, o = 5;
  Activation act0, act1 = Activation::linear;
  bool is_gated = true, is_kept = true;
  double dropout = 0;
  bool is_block = false;  // rows and hidden units are a part of all
  bool is_bench = false;
};

Shape with_depth(Shape leading, int64_t depth) {
  leading.push_back(depth);
  return leading;
}
Operand matrix(int64_t rows, int64_t columns) {
  return normal({rows, columns}, 1 / std::sqrt(static_cast<double>(rows)));
}

int64_t rows_of(const Settings& s) {
  return std::accumulate(s.leading.begin(), s.leading.end(), int64_t{1}, std::multiplies<>());
}

/// A case named after `s`, with the operands that all three ops share.
OpCase case_of(const char* op, Kernel kernel, Oracle oracle, const Settings& s) {
  std::string name = fmt::format("{}/{}", op, name_of(s.act0));
  if (s.is_gated) name += fmt::format("_{}", name_of(s.act1));
  name += fmt::format("/{}x{}x{}x{}{}{}{}", rows_of(s), s.e, s.f, s.o, s.is_kept ? "" : "/not_kept",
                      s.dropout > 0 ? "/dropout" : "", s.is_block ? "/block" : "");
  OpCase c{.name = name, .kernel = kernel, .oracle = std::move(oracle)};
  Operand x = normal(with_depth(s.leading, s.e)), w = matrix(s.e, s.f);
  if (s.is_block) {
    x.origin = Shape(x.shape.size(), 0), x.global = x.shape;
    x.origin[0] = x.shape[0], x.global[0] = 3 * x.shape[0];
    w.origin = {0, 2 * s.f}, w.global = {s.e, 4 * s.f};
  }
  c.inputs = {x, w, s.is_gated ? w : no_operand()};
  c.attrs = {{"act0", static_cast<int64_t>(s.act0)}, {"act1", static_cast<int64_t>(s.act1)}};
  if (s.dropout > 0) {
    c.attrs.set("rate", s.dropout);
    c.attrs.set("key0", int64_t{0x9e3779b9});
    c.attrs.set("key1", int64_t{0xf00dcafe});
    c.attrs.set("broadcast_dim", int64_t{-2});
  }
  return c;
}

OpCase mlp_in_case(const Settings& s) {
  OpCase c = case_of("mlp_in", mlp_in_cpu, mlp_in_oracle, s);
  c.outputs = {result(with_depth(s.leading, s.f))};
  return c;
}

OpCase mlp_case(const Settings& s) {
  OpCase c = case_of("mlp", mlp_cpu, mlp_oracle, s);
  const Result h = result(with_depth(s.leading, s.f));
  c.inputs.push_back(matrix(s.f, s.o));
  c.outputs = {result(with_depth(s.leading, s.o)), s.is_kept ? h : no_result(),
               s.is_kept && s.is_gated ? h : no_result()};
  // Of larger ones mlp_grad has the oracle; differences take seconds.
  if (s.is_kept && s.e * s.f < 1000)
    c.grads = {
        {.kernel = mlp_grad_cpu,
         .operands = {input(0), input(1), input(2), input(3), output(1), output(2), cotangent(0)},
         .results = {0, 1, s.is_gated ? 2 : -1},
         .others = {h.shape}}};
  c.flops = 2.0 * static_cast<double>(rows_of(s) * s.f * (s.e * (s.is_gated ? 2 : 1) + s.o));
  return c;
}

OpCase mlp_grad_case(const Settings& s) {
  OpCase c = case_of("mlp_grad", mlp_grad_cpu, mlp_grad_oracle, s);
  const Operand h = normal(with_depth(s.leading, s.f));
  c.inputs.insert(c.inputs.end(), {matrix(s.f, s.o), h, s.is_gated ? h : no_operand(),
                                   normal(with_depth(s.leading, s.o))});
  c.outputs = {result(c.inputs[0].shape), result(c.inputs[1].shape),
               s.is_gated ? result(c.inputs[1].shape) : no_result(), result(h.shape)};
  c.adds = {1, 2};
  c.flops = 2.0 * static_cast<double>(rows_of(s) * s.f * (s.e * (s.is_gated ? 4 : 2) + s.o));
  return c;
}

void gate_oracle(const Arrays& in, Arrays& out, const Attrs& attrs) {
  for (int64_t i = 0; i < in[0].rows() * in[0].depth(); ++i) {
    out[0][i] = activate(activation(attrs, 0), in[0][i]);
    if (!in[1].absent) out[0][i] *= activate(activation(attrs, 1), in[1][i]);
  }
}

void gate_grad_oracle(const Arrays& in, Arrays& out, const Attrs& attrs) {
  const bool gated = !in[1].absent;
  for (int64_t i = 0; i < in[0].rows() * in[0].depth(); ++i) {
    const double h1 = gated ? in[1][i] : 0;
    out[0][i] = in[2][i] * slope(activation(attrs, 0), in[0][i]) *
                (gated ? activate(activation(attrs, 1), h1) : 1);
    if (gated)
      out[1][i] =
          in[2][i] * activate(activation(attrs, 0), in[0][i]) * slope(activation(attrs, 1), h1);
  }
}

/// The op and its gradient on products [rows, f].
void add_gate(std::vector<OpCase>& cases, int64_t rows, int64_t f, Activation act0,
              std::optional<Activation> act1) {
  const Shape shape{rows, f};
  const Operand h1 = act1 ? normal(shape) : no_operand();
  const std::string name = fmt::format("/{}{}/{}x{}", name_of(act0),
                                       act1 ? fmt::format("_{}", name_of(*act1)) : "", rows, f);
  OpCase forward{.name = "gate" + name, .kernel = gate_cpu, .oracle = gate_oracle};
  forward.inputs = {normal(shape), h1};
  forward.outputs = {result(shape)};
  forward.grads = {{.kernel = gate_grad_cpu,
                    .operands = {input(0), input(1), cotangent(0)},
                    .results = {0, act1 ? 1 : -1}}};
  OpCase backward{.name = "gate_grad" + name, .kernel = gate_grad_cpu, .oracle = gate_grad_oracle};
  backward.inputs = {normal(shape), h1, normal(shape)};
  backward.outputs = {result(shape), act1 ? result(shape) : no_result()};
  for (OpCase* c : {&forward, &backward}) {
    c->attrs = {{"act0", static_cast<int64_t>(act0)},
                {"act1", static_cast<int64_t>(act1.value_or(Activation::linear))}};
    cases.push_back(std::move(*c));
  }
}

}  // namespace

std::vector<OpCase> mlp_cases() {
  using enum Activation;
  std::vector<OpCase> cases;
  const auto add = [&cases](Settings s) {
    std::vector<OpCase> ops{mlp_case(s)};
    if (s.is_kept) ops.push_back(mlp_grad_case(s));
    if (s.dropout == 0) ops.push_back(mlp_in_case(s));
    for (OpCase& c : ops) c.only_bench = s.is_bench;
    cases.insert(cases.end(), ops.begin(), ops.end());
  };
  for (Activation act : {linear, relu, gelu, silu, gelu_erf}) {
    add({.leading = {2, 3}, .e = 5, .f = 19, .act0 = act, .is_gated = false});
    add({.leading = {7}, .e = 4, .f = 9, .act0 = act, .act1 = linear});
  }
  add({.leading = {3}, .e = 6, .f = 17, .act0 = silu, .act1 = gelu});
  add({.leading = {3}, .e = 6, .f = 17, .act0 = relu, .act1 = gelu_erf});
  add({.leading = {130}, .e = 24, .f = 264, .o = 40, .act0 = gelu_erf, .dropout = 0.2});
  add({.leading = {}, .e = 3, .f = 1, .act0 = gelu});
  add({.leading = {0, 2}, .e = 3, .f = 4, .act0 = gelu});
  // More rows than a chunk, and not a multiple of one.
  add({.leading = {9, 257}, .e = 3, .f = 5, .act0 = gelu});
  add({.leading = {9, 257}, .e = 3, .f = 5, .act0 = gelu, .dropout = 0.3});
  add({.leading = {3, 2, 5}, .e = 4, .f = 37, .act0 = silu, .dropout = 0.5, .is_block = true});
  add({.leading = {4, 3}, .e = 4, .f = 40, .act0 = relu, .is_gated = false, .dropout = 0.1});
  // Rows, terms and columns that fill and cross the tiles of a GPU's tensor cores.
  add({.leading = {131}, .e = 72, .f = 136, .o = 72, .act0 = gelu});
  add({.leading = {2, 130}, .e = 24, .f = 264, .o = 40, .act0 = silu, .is_kept = false});
  add({.leading = {2, 130},
       .e = 24,
       .f = 264,
       .o = 40,
       .act0 = gelu,
       .act1 = silu,
       .dropout = 0.2,
       .is_block = true});
  add({.leading = {128}, .e = 264, .f = 16, .o = 8, .act0 = relu, .is_gated = false});
  // Activations that some of these kernels know when they are compiled, the others when they run.
  for (Activation act : {linear, gelu, silu})
    add({.leading = {129}, .e = 16, .f = 72, .o = 8, .act0 = act, .is_gated = false});
  for (Activation act : {relu, silu})
    add({.leading = {129}, .e = 16, .f = 72, .o = 8, .act0 = act});
  add({.leading = {129}, .e = 16, .f = 72, .o = 8, .act0 = gelu, .act1 = relu});
  for (Activation act : {linear, relu, gelu, silu, gelu_erf}) {
    add_gate(cases, 7, 19, act, std::nullopt);
    add_gate(cases, 33, 72, act, linear);
  }
  add_gate(cases, 5, 8, silu, gelu);
  add_gate(cases, 0, 4, gelu, linear);
  // The T5 1.1 small step; backward is twice the arithmetic.
  for (int64_t length : {256, 64})
    add({.leading = {8, length}, .e = 512, .f = 1024, .o = 512, .act0 = gelu, .is_bench = true});
  return cases;
}

// Value and slope of an activation at one point, through the ops.
struct Point {
  float value, slope;
};

Point point(Activation act, float at) {
  const std::vector<int64_t> shape{1, 1};
  std::vector<float> x{at}, one{1}, z{0}, h{0}, dx{0}, dw{0}, y{0};
  const Attrs attrs{{"act0", static_cast<int64_t>(act)}};
  const auto view = [&shape](std::vector<float>& v) { return View::of(v.data(), shape); };
  const View none = View::none(), w = view(one);
  mlp_cpu(std::vector<View>{view(x), w, none, w}, std::vector<View>{view(z), view(h), none}, attrs,
          {});
  mlp_grad_cpu(std::vector<View>{view(x), w, none, w, view(h), none, w},
               std::vector<View>{view(dx), view(dw), none, view(y)}, attrs, {});
  return {z[0], dx[0]};
}

// Large arguments: the exponential must not overflow into NaN.
TEST(Mlp, ActivationsAreFiniteFarFromZero) {
  for (Activation act : {Activation::gelu, Activation::silu, Activation::gelu_erf})
    for (float at : {-1e4F, -200.0F, -90.0F, -20.0F, 20.0F, 90.0F, 200.0F, 1e4F}) {
      const Point p = point(act, at);
      EXPECT_NEAR(p.value, activate(act, static_cast<double>(at)), 1e-5) << name_of(act) << at;
      EXPECT_NEAR(p.slope, at > 0 ? 1 : 0, 1e-5) << name_of(act) << at;
    }
}

TEST(Mlp, ActivationsKeepNaN) {
  for (Activation act : {Activation::linear, Activation::relu, Activation::gelu, Activation::silu,
                         Activation::gelu_erf})
    EXPECT_TRUE(std::isnan(point(act, std::nanf("")).value)) << name_of(act);
}

// Values are within a few units in the last place of float: T5X's own are no closer.
TEST(Mlp, ActivationsAreAccurate) {
  for (Activation act : {Activation::gelu, Activation::silu, Activation::gelu_erf})
    for (double at = -6; at < 6; at += 0.0371) {
      const auto x = static_cast<float>(at);
      const double want = activate(act, static_cast<double>(x));
      EXPECT_NEAR(point(act, x).value, want, 6e-7 * std::abs(want) + 1e-9) << name_of(act) << x;
    }
}

TEST(Mlp, ActivationsHaveT5XNames) {
  for (const char* name : {"linear", "relu", "gelu", "silu", "gelu_erf"})
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
