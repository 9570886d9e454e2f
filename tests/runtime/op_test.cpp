// Records of ops.def: what they must have, what calls may pass, what an op costs.

#include "runtime/op/op.h"

#include <gtest/gtest.h>

#include "kernels/mlp/mlp.h"
#include "runtime/ops/names.h"

namespace quintet {
namespace {

void nothing(Views, Views, const Attrs&, Stream) {}

std::string problem(const std::function<void()>& body) {
  try {
    body();
  } catch (const Bug& bug) {
    return bug.what();
  }
  return "accepted";
}

std::string problem_of(const char* attributes, CostOf cost = no_products) {
  return problem([&] {
    const Op op("twice", "x: ... -> y: ... with n", attributes, nothing, 0, cost, nullptr, nullptr);
  });
}

TEST(Op, HasACost) {
  EXPECT_EQ(problem_of(""), "accepted");
  EXPECT_EQ(problem_of("", nullptr),
            "op twice has no cost: name a function that counts its products in ops.def, or "
            "no_products");
}

TEST(Op, NamesEachAttributeOnceWithItsType) {
  EXPECT_EQ(problem_of("factor: double, causal: bool?"), "accepted");
  for (const char* text : {"factor", "factor: float", ": int", "rate: int, rate: int", "n: int"})
    EXPECT_TRUE(problem_of(text).starts_with("attributes of op twice: ")) << text;
}

TEST(Op, TakesTheAttributesOfItsRecordAlone) {
  const Tensor x = Tensor::zeros({{{"n", 3}}, DType::f32});
  const auto scale = [&](const Attrs& attrs) {
    return problem([&] { call(ops::table::scale, {x}, attrs); });
  };
  EXPECT_EQ(scale({{"factor", 2.0}}), "accepted");
  EXPECT_EQ(scale({{"factor", int64_t{2}}}), "accepted");
  EXPECT_EQ(scale({}), "scale: attribute 'factor' is missing");
  EXPECT_EQ(scale({{"factor", true}}),
            "scale: attribute 'factor' is bool, its record in ops.def says double");
  EXPECT_EQ(scale({{"factor", 2.0}, {"rate", 0.5}}),
            "scale: attribute 'rate' is not in its record in ops.def");
}

TEST(Op, PassesOnWhatAnotherOpNames) {
  const Attrs attrs = attributes_for(ops::table::rms_norm, {{"eps", 1e-6}, {"rate", 0.5}});
  EXPECT_TRUE(attrs.has("eps"));
  EXPECT_FALSE(attrs.has("rate"));
}

TEST(Op, PositionsAreThoseOfItsRule) {
  const std::vector<int> numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const auto results = results_of<rules::route>(numbers);
  EXPECT_EQ(results["gates"], 0);
  EXPECT_EQ(results["rows"], 4);
  EXPECT_EQ(results["load"], 10);
  EXPECT_EQ(inputs_of<rules::attention_grad>(numbers)["logsumexp"], 9);
}

/// A block of that shape, of numbers that nobody reads.
View block(std::vector<int64_t> shape) { return View::of(static_cast<float*>(nullptr), shape); }

double flops(const Op& op, std::vector<View> in, std::vector<View> out) {
  return cost_of(op, in, out).flops;
}

// x [2, 3, 4]; 5 of what comes out, or of the MLP's hidden units.
TEST(Op, CountsTheProductsOfItsBlocks) {
  using namespace ops::table;  // NOLINT
  const View x = block({2, 3, 4}), y = block({2, 3, 5}), w = block({4, 5}), none = View::none();
  EXPECT_EQ(flops(matmul, {x, w}, {y}), 2 * 6 * 4 * 5);
  EXPECT_EQ(flops(matmul_t, {x, block({5, 4})}, {y}), 2 * 6 * 4 * 5);
  EXPECT_EQ(flops(matmul_grad_w, {x, y}, {w}), 2 * 6 * 4 * 5);
  const View wo = block({5, 7}), z = block({2, 3, 7});
  EXPECT_EQ(flops(mlp, {x, w, none, wo}, {z, y, none}), 2 * 6 * 5 * (4 + 7));
  EXPECT_EQ(flops(mlp, {x, w, w, wo}, {z, y, y}), 2 * 6 * 5 * (2 * 4 + 7));
  EXPECT_EQ(flops(mlp_grad, {x, w, w, wo, y, y, z}, {x, w, w, y}), 2 * 6 * 5 * (4 * 4 + 7));
  EXPECT_EQ(flops(mlp_in, {x, w, w}, {y}), 2 * 6 * 4 * 5 * 2);
  EXPECT_EQ(flops(scale, {x}, {x}), 0);
}

TEST(Op, CountsTheScoresOfAttention) {
  const View q = block({2, 3, 8}), k = block({2, 5, 8}), lse = block({2, 4, 3}),
             none = View::none();
  const std::vector<View> in{q, k, k, none, none, none, none, none};
  std::vector<View> grad_in = in;
  grad_in.insert(grad_in.end(), {q, lse, q});
  const Cost forward = cost_of(ops::table::attention, in, std::vector<View>{q, lse});
  const Cost backward =
      cost_of(ops::table::attention_grad, grad_in, std::vector<View>{q, k, k, none});
  EXPECT_EQ(forward.flops, 4 * 2 * 3 * 8 * 5);
  EXPECT_EQ(backward.flops, 2 * forward.flops);
  EXPECT_EQ(forward.score_bytes, 4 * 2 * 4 * 3 * 5);
  EXPECT_EQ(backward.score_bytes, 2 * forward.score_bytes);
  EXPECT_EQ(forward.bytes, 4 * (2 * 48 + 2 * 80 + 24));
  EXPECT_EQ(cost_of(ops::table::attention, in, std::vector<View>{q, none}).score_bytes, 0);
}

TEST(Op, CountsTheLogitsOfALossAndItsGradients) {
  using namespace ops::table;  // NOLINT
  const View x = block({2, 3, 4}), w = block({4, 9}), w_t = block({9, 4}), tokens = block({2, 3}),
             one = block({}), none = View::none(), statistics = block({2, 3, 1, 5});
  const double logits = 2 * 6 * 4 * 9;
  const std::vector<View> in{x, w, tokens, tokens}, in_t{x, w_t, tokens, tokens};
  EXPECT_EQ(flops(cross_entropy, in, {one, one, one, tokens, none, none}), logits);
  EXPECT_EQ(flops(cross_entropy, in, {one, one, one, tokens, x, w}), 3 * logits);
  EXPECT_EQ(flops(cross_entropy_t, in_t, {one, one, one, tokens, x, w_t}), 3 * logits);
  EXPECT_EQ(flops(cross_entropy_statistics, {x, w, tokens}, {statistics}), logits);
  EXPECT_EQ(flops(cross_entropy_t_apply, {x, w_t, tokens, tokens, statistics},
                  {one, one, one, tokens, x, w_t}),
            2 * logits);
}

// 2 x 6 packed rows, 3 experts.
TEST(Op, CountsTheProductsOfExperts) {
  using namespace ops::table;  // NOLINT
  const View x = block({2, 6, 4}), offsets = block({2, 4}), w = block({3, 4, 5}),
             y = block({2, 6, 5}), none = View::none(), router = block({4, 3});
  const double product = 2 * 12 * 4 * 5;
  EXPECT_EQ(flops(grouped_matmul, {x, offsets, w}, {y}), product);
  EXPECT_EQ(flops(grouped_matmul_t, {y, offsets, w}, {x}), product);
  EXPECT_EQ(flops(grouped_matmul_grad_w, {x, offsets, y}, {w}), product);
  EXPECT_EQ(flops(experts_in, {x, offsets, w, w}, {y, y, y}), 2 * product);
  EXPECT_EQ(flops(experts_in_grad, {x, offsets, w, none, y, none, y}, {x, w, none}), 2 * product);
  EXPECT_EQ(flops(experts_in_grad, {x, offsets, w, w, y, y, y}, {x, w, w}), 4 * product);
  EXPECT_EQ(flops(route, {x, router, none}, std::vector<View>(11, none)), 2 * 48 * 3);
  EXPECT_EQ(flops(route_grad, {x, router, none, none, none, none, none, none}, {x, router, none}),
            4 * 48 * 3);
}

}  // namespace
}  // namespace quintet
