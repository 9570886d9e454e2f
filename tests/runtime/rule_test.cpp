// Rules of ops.def: what they accept, what results they give, how they refuse.

#include "runtime/op/rule.h"

#include <gtest/gtest.h>

#include "runtime/op/op.h"

namespace quintet {
namespace {

Tensor tensor(Axes axes) { return Tensor(Spec{std::move(axes), DType::f32}); }

std::string refusal(const std::string& rule, const Tensors& inputs) {
  try {
    bind("op", Rule::parse("op", rule), inputs, {});
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kUsage);
    return e.what();
  }
  return "accepted";
}

TEST(Rule, GivesResultsTheAxesOfTheirLetters) {
  const auto shapes = bind(
      "matmul", Rule::parse("matmul", "x: ...k, w: kn -> y: ...n"),
      {tensor({{"batch", 2}, {"length", 3}, {"embed", 4}}), tensor({{"embed", 4}, {"mlp", 5}})},
      {});
  EXPECT_EQ(to_string(shapes[0].spec), "[batch=2, length=3, mlp=5] float32");
  EXPECT_EQ(shapes[0].global_slice.sizes, (std::vector<int64_t>{2, 3, 5}));
}

TEST(Rule, CarriesTheBlockOfAMicrobatch) {
  Layout layout;
  layout.dims.resize(2);
  const Tensor x(Spec{{{"batch", 8}, {"embed", 4}}, DType::f32}, layout, {{6, 0}, {2, 4}});
  const auto shapes = bind("op", Rule::parse("op", "x: ...k, w: kn -> y: ...n"),
                           {x, tensor({{"embed", 4}, {"mlp", 3}})}, {});
  EXPECT_EQ(shapes[0].global_slice, (Block{{6, 0}, {2, 3}}));
  EXPECT_EQ(shapes[0].spec.axes[0].size, 8);
}

TEST(Rule, TakesSizesThatNoOperandHasFromAttributes) {
  const auto shapes =
      bind("op", Rule::parse("op", "ids: ..., dy: ...e -> dtable: ve with v = vocab"),
           {tensor({{"batch", 2}}), tensor({{"batch", 2}, {"embed", 3}})}, {{"v", int64_t{7}}});
  EXPECT_EQ(to_string(shapes[0].spec), "[vocab=7, embed=3] float32");
}

TEST(Rule, RefusesOperandsThatDoNotFitNamingBoth) {
  EXPECT_EQ(refusal("x: ...k, w: kn -> y: ...n",
                    {tensor({{"batch", 2}, {"embed", 4}}), tensor({{"mlp", 5}, {"embed", 4}})}),
            "op: axis 'k' is embed=4 in operand x and mlp=5 in operand w");
  EXPECT_EQ(refusal("x: ..., y: ... -> z: ...", {tensor({{"batch", 2}}), tensor({{"batch", 3}})}),
            "op: leading axes of operand y [batch=3] float32 differ from those of operand x");
  EXPECT_EQ(refusal("x: ab -> y: a", {tensor({{"batch", 2}})}),
            "op: operand x is [batch=2] float32, expected 2 axes");
}

TEST(Rule, RefusesTextThatIsNoRule) {
  for (const char* text :
       {"x: ab, y: bc", "x: a$ -> y: a", "x: (ab -> y: a", "ab -> y: a", "x: a -> y: a with heads",
        "x: a -> y: a with h = heads k", "x: a| -> y: a", "x: a -> y: a|", "x: a& -> y: a"})
    EXPECT_THROW(Rule::parse("op", text), Bug) << text;
}

TEST(Rule, RefusesALetterWithoutASize) {
  for (const char* text : {"x: a -> y: ab", "x: (gn)e -> y: (gn)e with n"}) {
    SCOPED_TRACE(text);
    EXPECT_THROW(Rule::parse("op", text), Bug);
  }
  EXPECT_NO_THROW(Rule::parse("op", "x: (gn)e -> y: (gn)e, sum: g with g"));
}

TEST(Rule, OfEveryOpIsReadAndHasAKernel) {
  for (const Op* op : all_ops()) {
    EXPECT_FALSE(op->rule.inputs.empty()) << op->name;
    EXPECT_NE(op->cpu, nullptr) << op->name;
  }
}

}  // namespace
}  // namespace quintet
