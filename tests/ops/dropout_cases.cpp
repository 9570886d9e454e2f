// Dropout: the oracle counts elements of the whole array one by one.

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/dropout/dropout.h"
#include "kernels/elementwise/elementwise.h"
#include "runtime/base/threefry.h"
#include "tests/ops/dropout_oracle.h"
#include "tests/ops/harness.h"

namespace quintet::testing {
namespace {

Attrs dropout_attrs(double rate, int64_t broadcast_dim) {
  return {{"rate", rate},
          {"key0", int64_t{0x9e3779b9}},
          {"key1", int64_t{0xf00dcafe}},
          {"broadcast_dim", broadcast_dim}};
}

struct Block {
  Shape shape, origin{}, global{};
};

void add_cases(std::vector<OpCase>& cases, const Block& block, double rate,
               bool only_bench = false) {
  for (int64_t broadcast_dim : {0, -2}) {
    if (broadcast_dim == -2 && block.shape.size() < 2) continue;
    OpCase c{.name = "dropout/", .kernel = dropout_cpu};
    double elements = 1;
    for (int64_t s : block.shape) {
      c.name += fmt::format("{}x", s);
      elements *= static_cast<double>(s);
    }
    c.name +=
        fmt::format("{}{}{}", static_cast<int>(rate * 100), broadcast_dim == 0 ? "" : "_shared",
                    block.global.empty() ? "" : "_block");
    Operand x = normal(block.shape);
    x.origin = block.origin;
    x.global = block.global;
    c.inputs = {x};
    c.outputs = {{.shape = block.shape, .origin = block.origin, .global = block.global}};
    c.attrs = dropout_attrs(rate, broadcast_dim);
    c.oracle = [](const Arrays& in, Arrays& out, const Attrs& attrs) {
      for (size_t i = 0; i < out[0].values.size(); ++i)
        out[0].values[i] = dropped(in[0], static_cast<int64_t>(i), attrs);
    };
    c.tolerance = 2e-7;
    c.grads = {{dropout_cpu, {cotangent(0)}, {0}}};
    c.only_bench = only_bench;
    c.bytes = 8 * elements;
    cases.push_back(c);
    OpCase sum = c;
    sum.name.replace(0, std::string("dropout").size(), "add_dropout");
    sum.kernel = add_cpu;
    sum.inputs = {x, x};
    sum.oracle = [](const Arrays& in, Arrays& out, const Attrs& attrs) {
      for (size_t i = 0; i < out[0].values.size(); ++i)
        out[0].values[i] = in[0].values[i] + dropped(in[1], static_cast<int64_t>(i), attrs);
    };
    sum.grads = {{dropout_cpu, {cotangent(0)}, {1}}};
    sum.bytes = 12 * elements;
    cases.push_back(sum);
  }
}

/// Columns of heads: each head's have the same mask, drawn for [.., 1, columns of a head].
OpCase heads_case(const Block& block, int64_t heads) {
  OpCase c{.name = fmt::format("dropout/{}_heads_of_{}", heads, block.shape.back()),
           .kernel = dropout_cpu};
  Operand x = normal(block.shape);
  x.origin = block.origin;
  x.global = block.global;
  c.inputs = {x};
  c.outputs = {{.shape = block.shape, .origin = block.origin, .global = block.global}};
  c.attrs = dropout_attrs(0.4, -2);
  c.attrs.set("heads", heads);
  c.oracle = [heads](const Arrays& in, Arrays& out, const Attrs& attrs) {
    const int64_t width = in[0].global.back() / heads;
    Array token = in[0];
    token.shape.back() = token.global.back() = width;
    token.origin.back() = 0;
    Attrs each = attrs;
    each.set("broadcast_dim", int64_t{0});
    for (int64_t row = 0; row < in[0].rows(); ++row)
      for (int64_t column = 0; column < in[0].depth(); ++column) {
        const int64_t i = row * in[0].depth() + column, first = row * width + column % width;
        token.values[static_cast<size_t>(first)] = in[0][i];
        out[0][i] = dropped(token, first, each);
      }
  };
  c.tolerance = 2e-7;
  c.grads = {{dropout_cpu, {cotangent(0)}, {0}}};
  return c;
}

}  // namespace

std::vector<OpCase> dropout_cases() {
  std::vector<OpCase> cases;
  add_cases(cases, {{2, 3, 5}}, 0.1);
  add_cases(cases, {{17}}, 0.5);
  add_cases(cases, {{1, 1}}, 0.5);
  add_cases(cases, {{0, 3}}, 0.5);
  add_cases(cases, {{4, 33}}, 0.0);
  add_cases(cases, {{4, 33}}, 1.0);
  add_cases(cases, {{3, 70, 257}}, 0.3);
  add_cases(cases, {{2, 3, 5}, {4, 2, 10}, {7, 9, 20}}, 0.4);
  add_cases(cases, {{2, 19}, {3, 0}, {8, 19}}, 0.4);
  cases.push_back(heads_case({{2, 3, 12}}, 4));
  cases.push_back(heads_case({{2, 3, 70}, {1, 3, 35}, {4, 6, 140}}, 4));
  // Elements whose numbers pass 2^32.
  add_cases(cases, {{2, 40}, {65535, 65520}, {1 << 20, 65560}}, 0.4);
  add_cases(cases, {{8, 256, 512}}, 0.1, true);
  add_cases(cases, {{8, 256, 1024}}, 0.1, true);
  return cases;
}

// jax.random.bernoulli(key, keep, shape) of whole arrays, sharded into blocks, is the same mask.
TEST(Dropout, BlocksGetTheMaskOfTheWhole) {
  const std::vector<int64_t> whole{4, 6, 10}, half{2, 6, 10};
  for (int64_t broadcast_dim : {0, -2}) {
    std::vector<float> x(240, 1.0F), y(240), parts(240);
    const Attrs attrs = dropout_attrs(0.5, broadcast_dim);
    const std::vector<View> in{View::of(x.data(), whole)}, out{View::of(y.data(), whole)};
    dropout_cpu(in, out, attrs, {});
    for (int64_t i = 0; i < 2; ++i) {
      std::vector<View> block{View::of(x.data() + i * 120, half)};
      std::vector<View> result{View::of(parts.data() + i * 120, half)};
      for (View* v : {&block[0], &result[0]}) {
        v->global[0] = 4;
        v->origin[0] = 2 * i;
      }
      dropout_cpu(block, result, attrs, {});
    }
    EXPECT_EQ(y, parts);
    EXPECT_GT(std::count(y.begin(), y.end(), 0.0F), 60);
    EXPECT_GT(std::count(y.begin(), y.end(), 2.0F), 60);
  }
}

TEST(Dropout, RefusesRatesThatAreNoProbability) {
  std::vector<float> x(4);
  const std::vector<int64_t> shape{4};
  const std::vector<View> v{View::of(x.data(), shape)};
  EXPECT_THROW(dropout_cpu(v, v, dropout_attrs(1.5, 0), {}), Error);
  EXPECT_THROW(dropout_cpu(v, v, dropout_attrs(-0.1, 0), {}), Error);
  EXPECT_THROW(dropout_cpu(v, v, dropout_attrs(0.1, -2), {}), Error);
}

TEST(Dropout, RefusesColumnsThatAreNoHeads) {
  std::vector<float> x(12);
  const std::vector<int64_t> shape{2, 6};
  const std::vector<View> v{View::of(x.data(), shape)};
  Attrs attrs = dropout_attrs(0.1, -2);
  attrs.set("heads", int64_t{4});
  EXPECT_THROW(dropout_cpu(v, v, attrs, {}), Error);
}

}  // namespace quintet::testing
