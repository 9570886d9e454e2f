// Packed rows of experts: there and back, products with each expert's matrices, dropout.

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/moe/dispatch.h"
#include "kernels/moe/experts.h"
#include "kernels/moe/mask.h"
#include "tests/ops/dropout_oracle.h"
#include "tests/ops/moe_packing.h"

namespace quintet::testing {
namespace {

void dispatch_oracle(const Arrays& in, Arrays& out, const Attrs&) {
  const int64_t e = in[0].depth(), k = in[1].depth();
  for (int64_t r = 0; r < out[0].rows(); ++r)
    for (int64_t i = 0; i < e; ++i) {
      const auto choice = static_cast<int64_t>(in[2][r]);
      out[0][r * e + i] =
          choice < 0 ? 0 : in[0][choice / k * e + i] * (in[3].absent ? 1 : in[3][choice]);
    }
}

void combine_oracle(const Arrays& in, Arrays& out, const Attrs&) {
  const int64_t e = in[0].depth(), k = in[1].depth();
  for (int64_t t = 0; t < out[0].rows(); ++t)
    for (int64_t i = 0; i < e; ++i) {
      double sum = 0;
      for (int64_t c = t * k; c < (t + 1) * k; ++c)
        if (in[1][c] >= 0)
          sum += in[0][static_cast<int64_t>(in[1][c]) * e + i] * (in[3].absent ? 1 : in[3][c]);
      out[0][t * e + i] = sum;
    }
}

OpCase dispatch_case(const std::string& name, const Packing& p, int64_t e, bool gates) {
  OpCase c{.name = fmt::format("dispatch/{}{}", name, gates ? "/gates" : ""),
           .kernel = dispatch_cpu};
  c.inputs = {normal({p.b, p.l, e}), p.rows_operand(), p.choices_operand(),
              gates ? normal({p.b, p.l, p.k}) : no_operand()};
  c.outputs = {result({p.b, p.n, e})};
  c.oracle = dispatch_oracle;
  c.tolerance = gates ? 1e-6 : 0;
  if (!gates) c.grads = {{combine_cpu, {cotangent(0), input(1), input(2), none()}, {0}}};
  return c;
}

OpCase combine_case(const std::string& name, const Packing& p, int64_t e, bool gates) {
  OpCase c{.name = fmt::format("combine/{}{}", name, gates ? "/gates" : ""), .kernel = combine_cpu};
  c.inputs = {normal({p.b, p.n, e}), p.rows_operand(), p.choices_operand(),
              gates ? normal({p.b, p.l, p.k}) : no_operand()};
  c.outputs = {result({p.b, p.l, e})};
  c.oracle = combine_oracle;
  c.tolerance = 2e-6;
  c.grads = {{dispatch_cpu, {cotangent(0), input(1), input(2), gates ? input(3) : none()}, {0}}};
  if (gates) c.grads.push_back({combine_grad_gates_cpu, {input(0), input(1), cotangent(0)}, {3}});
  return c;
}

// Expert x's rows share the mask of row x of [experts, 1, f].
void experts_dropout_oracle(const Arrays& in, Arrays& out, const Attrs& attrs) {
  const int64_t f = in[0].depth();
  Attrs each = attrs;
  each.set("broadcast_dim", int64_t{0});
  each_row(in, out, [&](int64_t r, int64_t expert) {
    Array ones;
    ones.shape = {1, f};
    ones.values.assign(static_cast<size_t>(f), 1.0);
    const int64_t before = in[1].origin[1] / in[1].depth();  // as many experts each
    ones.origin = {before * (in[1].depth() - 1) + expert, in[0].origin[2]};
    ones.global = {ones.origin[0] + 1, in[0].global[2]};
    if (attrs.has("fold")) {  // a mask of [1, f] by the expert's own key
      const Key key{static_cast<uint32_t>(attrs.get<int64_t>("key0")),
                    static_cast<uint32_t>(attrs.get<int64_t>("key1"))};
      const Key own = fold_in(split_at(key, static_cast<uint64_t>(ones.origin[0])),
                              static_cast<uint32_t>(attrs.get<int64_t>("fold")));
      each.set("key0", static_cast<int64_t>(own.a));
      each.set("key1", static_cast<int64_t>(own.b));
      ones.origin[0] = 0;
    }
    for (int64_t j = 0; j < f; ++j) out[0][r * f + j] = in[0][r * f + j] * dropped(ones, j, each);
  });
}

OpCase dropout_case(const std::string& name, const Packing& p, int64_t f, int64_t origin = 0,
                    int64_t all = 0, int64_t blocks_before = 0) {
  OpCase c{.name = "experts_dropout/" + name, .kernel = experts_dropout_cpu};
  Operand x = p.packed(f);
  x.origin = {0, 0, origin};
  x.global = {p.b, p.n, std::max(all, f)};
  Operand offsets = p.offsets_operand();
  offsets.origin = {0, blocks_before * (p.experts + 1)};
  offsets.global = {p.b, (blocks_before + 1) * (p.experts + 1)};
  c.inputs = {x, offsets};
  c.outputs = {{.shape = x.shape, .origin = x.origin, .global = x.global}};
  c.attrs = {{"rate", 0.3}, {"key0", int64_t{5}}, {"key1", int64_t{6}}};
  c.oracle = experts_dropout_oracle;
  c.grads = {{experts_dropout_cpu, {cotangent(0), input(1)}, {0}}};
  return c;
}

OpCase mask_case(const std::string& name, const Shape& leading, int64_t e) {
  OpCase c{.name = "mask_tokens/" + name, .kernel = mask_tokens_cpu};
  Shape x = leading;
  x.push_back(e);
  c.inputs = {normal(x), integers(leading, 0, 3)};
  c.outputs = {result(x)};
  c.oracle = [](const Arrays& in, Arrays& out, const Attrs&) {
    for (int64_t i = 0; i < in[0].rows() * in[0].depth(); ++i)
      out[0][i] = in[1][i / in[0].depth()] == 0 ? 0 : in[0][i];
  };
  c.tolerance = 0;
  c.grads = {{mask_tokens_cpu, {cotangent(0), input(1)}, {0}}};
  return c;
}

}  // namespace

std::vector<OpCase> moe_experts_cases() {
  const std::vector<std::pair<std::string, Packing>> packings = {
      {"top1", Packing(2, 7, 1, 3)},
      {"top2", Packing(3, 5, 2, 4)},
      {"idle_experts", Packing(2, 6, 1, 5, {0, 3, 4})},
      {"all_to_one", Packing(2, 6, 1, 3, {0, 2}, 0)},
      {"none_served", Packing(2, 3, 2, 3, {0, 1, 2})},
      {"no_tokens", Packing(0, 3, 1, 2)},
      {"uneven", Packing(4, 33, 2, 9, {7})}};
  std::vector<OpCase> cases;
  for (const auto& [name, p] : packings) {
    for (const bool gates : {false, true}) {
      cases.push_back(dispatch_case(name, p, 5, gates));
      cases.push_back(combine_case(name, p, 19, gates));
    }
    for (const bool gated : {false, true})
      for (const bool keeps : {false, true})
        cases.push_back(experts_in_case(name, p, 5, 9, gated, keeps));
    for (const bool gated : {false, true})
      cases.push_back(experts_in_grad_case(name, p, 5, 9, gated));
    cases.push_back(grouped_case(name, p, 6, 11));
    cases.push_back(grouped_grad_w_case(name, p, 6, 11));
    cases.push_back(dropout_case(name, p, 7));
  }
  cases.push_back(dropout_case("part_of_the_columns", packings[1].second, 6, 6, 18));
  cases.push_back(dropout_case("third_part_of_the_experts", packings[1].second, 7, 0, 7, 2));
  cases.push_back(dropout_case("each_with_its_key", packings[1].second, 40, 6, 80, 2));
  cases.back().attrs.set("fold", int64_t{77});
  cases.push_back(mask_case("2x5x7", {2, 5}, 7));
  cases.push_back(mask_case("no_rows", {0, 5}, 3));
  cases.push_back(mask_case("many", {3, 300}, 33));
  return cases;
}

}  // namespace quintet::testing
