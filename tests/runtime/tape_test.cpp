// The tape: gradients of small graphs by hand, sharing, remat, what it keeps and lets go.

#include "runtime/execution/tape.h"

#include <gtest/gtest.h>

#include <numeric>

#include "runtime/execution/gradient_buckets.h"
#include "runtime/ops/ops.h"
#include "runtime/profile/profile.h"

namespace quintet {
namespace {

Tensor leaf(Axes axes, float start = 1) {
  Tensor t(Spec{std::move(axes), DType::f32});
  std::iota(t.data<float>().begin(), t.data<float>().end(), start);
  return t.set_needs_grad(true);
}

std::vector<float> values(const Tensor& t) {
  return {t.data<float>().begin(), t.data<float>().end()};
}

/// Gradients of f's result for all-one cotangents.
template <typename F>
void differentiate(F f) {
  Tape tape;
  Tensor y;
  {
    Tape::Recording recording(tape);
    y = f();
  }
  Tensor ones(y.spec());
  std::fill(ones.data<float>().begin(), ones.data<float>().end(), 1.0f);
  tape.backward({y}, {ones});
}

TEST(Tape, AddsTheGradientsOfATensorUsedTwice) {
  const Tensor x = leaf({{"n", 3}});
  differentiate([&] { return ops::add(ops::scale(x, 2), ops::add(x, x)); });
  EXPECT_EQ(values(x.grad()), (std::vector<float>{4, 4, 4}));
}

TEST(Tape, AddsToTheGradientThatIsThere) {
  const Tensor x = leaf({{"n", 2}});
  for (int i = 0; i < 3; ++i) differentiate([&] { return ops::scale(x, 5); });
  EXPECT_EQ(values(x.grad()), (std::vector<float>{15, 15}));
}

TEST(Tape, DoesNotWriteIntoAGradientThatTwoTensorsShare) {
  const Tensor x = leaf({{"n", 2}}), y = leaf({{"n", 2}});
  differentiate([&] { return ops::add(ops::add(x, y), x); });
  EXPECT_EQ(values(x.grad()), (std::vector<float>{2, 2}));
  EXPECT_EQ(values(y.grad()), (std::vector<float>{1, 1}));
}

TEST(Tape, DifferentiatesAProduct) {
  const Tensor x = leaf({{"m", 2}, {"k", 2}}), w = leaf({{"k", 2}, {"n", 2}}, 5);
  differentiate([&] { return ops::matmul(x, w); });
  EXPECT_EQ(values(x.grad()), (std::vector<float>{11, 15, 11, 15}));
  EXPECT_EQ(values(w.grad()), (std::vector<float>{4, 4, 6, 6}));
}

TEST(Tape, AddsAProductToTheGradientThatIsThere) {
  const Tensor x = leaf({{"m", 2}, {"k", 2}});
  const Tensor a = leaf({{"k", 2}, {"k", 2}}, 5), b = leaf({{"k", 2}, {"k", 2}}, 9);
  differentiate([&] {
    const Tensor h = ops::scale(x, 2);
    return ops::add(ops::add(ops::matmul(h, a), ops::matmul_t(h, b)), h);
  });
  // The ones that h has first are the products' gradient, too.
  EXPECT_EQ(values(x.grad()), (std::vector<float>{2 * (11 + 20 + 1), 2 * (15 + 22 + 1),
                                                  2 * (11 + 20 + 1), 2 * (15 + 22 + 1)}));
}

TEST(Tape, AddsANormsGradientToTheOneThatIsThere) {
  const Tensor x = leaf({{"m", 2}, {"k", 2}}), scale = leaf({{"k", 2}}),
               other = leaf({{"m", 2}, {"k", 2}});
  const auto norm = [&](const Tensor& h) { return ops::rms_norm(h, scale); };
  differentiate([&] { return norm(ops::scale(x, 2)); });
  std::vector<float> want = values(x.grad());
  for (float& v : want) v += 2;
  const std::vector<float> want_scale = values(scale.grad());
  for (const Tensor& t : {x, scale}) t.set_grad({});
  differentiate([&] {
    const Tensor h = ops::scale(x, 2), normed = norm(h), sum = ops::add(h, other);
    return ops::add(normed, sum);  // whose gradients come back newest first
  });
  for (size_t i = 0; i < want.size(); ++i) EXPECT_FLOAT_EQ(values(x.grad())[i], want[i]);
  EXPECT_EQ(values(scale.grad()), want_scale);
  EXPECT_EQ(values(other.grad()), (std::vector<float>{1, 1, 1, 1}));
}

TEST(Tape, AddsAProductToAParametersGradientAndLeavesWhatOthersHoldOfIt) {
  const Tensor x = leaf({{"m", 2}, {"k", 2}}), w = leaf({{"k", 2}, {"n", 2}}, 5);
  Tensor first;
  for (const std::vector<float>& want :
       std::vector<std::vector<float>>{{4, 4, 6, 6}, {8, 8, 12, 12}, {12, 12, 18, 18}}) {
    differentiate([&] { return ops::matmul(x, w); });
    EXPECT_EQ(values(w.grad()), want);
    if (!first) first = w.grad();
  }
  EXPECT_EQ(values(first), (std::vector<float>{4, 4, 6, 6}));
}

/// Of a pass over a small vocabulary.
struct LossPass {
  Tensor x = leaf({{"m", 2}, {"embed", 2}}), projection = leaf({{"embed", 2}, {"vocab", 3}}, -1);

  void run(Tape& tape, GradientBuckets& buckets, bool is_total, double factor = 1) const {
    Tensor targets(Spec{{{"m", 2}}, DType::i32}), weights(Spec{{{"m", 2}}, DType::f32}), loss;
    for (size_t t = 0; t < 2; ++t)
      targets.data<int32_t>()[t] = static_cast<int32_t>(t), weights.data<float>()[t] = 0.5f;
    {
      Tape::Recording recording(tape);
      const auto of = ops::cross_entropy(x, projection, targets, weights, {.is_total = is_total});
      loss = factor == 1 ? of.loss : ops::scale(of.loss, factor);
    }
    tape.backward(loss, buckets);
    buckets.finish();
  }
};

TEST(Tape, ALossAddsToItsMatrixsGradientWhereTheNextPassIsKnown) {
  const LossPass loss;
  GradientBuckets buckets;
  Tape first(buckets), second(buckets);
  loss.run(first, buckets, true);
  const std::vector<float> once = values(loss.projection.grad());
  const void* const place = loss.projection.grad().data<float>().data();
  loss.run(second, buckets, true);
  EXPECT_EQ(loss.projection.grad().data<float>().data(), place);
  for (size_t i = 0; i < once.size(); ++i)
    EXPECT_FLOAT_EQ(values(loss.projection.grad())[i], 2 * once[i]);
}

TEST(Tape, ALossThatIsScaledOrOfAnUnknownPassDoesNotTouchWhatIsThere) {
  const LossPass loss;
  GradientBuckets buckets;
  Tape first, scaled(buckets), unknown;
  loss.run(first, buckets, false);
  const std::vector<float> once = values(loss.projection.grad());
  loss.run(scaled, buckets, false, 3);
  for (size_t i = 0; i < once.size(); ++i)
    EXPECT_FLOAT_EQ(values(loss.projection.grad())[i], 4 * once[i]);
  {
    Tape::Recording recording(unknown);  // and no backward pass
    Tensor targets(Spec{{{"m", 2}}, DType::i32}), weights(Spec{{{"m", 2}}, DType::f32});
    std::ranges::fill(targets.data<int32_t>(), 1);
    std::ranges::fill(weights.data<float>(), 1.0f);
    ops::cross_entropy(loss.x, loss.projection, targets, weights, {.is_total = true});
  }
  for (size_t i = 0; i < once.size(); ++i)
    EXPECT_FLOAT_EQ(values(loss.projection.grad())[i], 4 * once[i]);
}

TEST(Tape, GivesTheSameGradientsWithRemat) {
  const Tensor x = leaf({{"m", 2}, {"k", 3}}), w = leaf({{"k", 3}, {"n", 3}}, 2);
  const Tensor scale = leaf({{"n", 3}});
  const auto region = [&](const Tensors& in) {
    return Tensors{ops::rms_norm(ops::matmul(in[0], w), scale)};
  };
  differentiate([&] { return region({x})[0]; });
  const auto want_x = values(x.grad()), want_w = values(w.grad()), want_s = values(scale.grad());
  for (const Tensor& t : {x, w, scale}) t.set_grad({});
  differentiate([&] { return remat(region, {x})[0]; });
  EXPECT_EQ(values(x.grad()), want_x);
  EXPECT_EQ(values(w.grad()), want_w);
  EXPECT_EQ(values(scale.grad()), want_s);
}

TEST(Tape, KeepsProductsWhereTheRestIsComputedAgain) {
  const Tensor x = leaf({{"m", 2}, {"k", 3}}), w = leaf({{"k", 3}, {"n", 3}}, 2);
  const Tensor scale = leaf({{"n", 3}});
  const auto region = [&](const Tensors& in) {
    return Tensors{ops::rms_norm(ops::matmul(in[0], w), scale)};
  };
  differentiate([&] { return region({x})[0]; });
  const auto want = std::vector{values(x.grad()), values(w.grad()), values(scale.grad())};
  const auto calls_of = [&](bool keeps_products) {
    for (const Tensor& t : {x, w, scale}) t.set_grad({});
    Profile profile;
    {
      const Profile::Use use(profile);
      differentiate([&] { return remat(region, {x}, keeps_products)[0]; });
    }
    EXPECT_EQ((std::vector{values(x.grad()), values(w.grad()), values(scale.grad())}), want);
    return std::pair(profile.entries().at("matmul").calls, profile.entries().at("rms_norm").calls);
  };
  EXPECT_EQ(calls_of(true), std::pair(int64_t{1}, int64_t{2}));
  EXPECT_EQ(calls_of(false), std::pair(int64_t{2}, int64_t{2}));
}

// x + dropout(y) and its norm; a graph may use both results, or one alone.
TEST(Tape, DifferentiatesAResidualNormAsItsSumAndItsNorm) {
  const Tensor x = leaf({{"m", 2}, {"n", 3}}), y = leaf({{"m", 2}, {"n", 3}}, -2);
  const Tensor scale = leaf({{"n", 3}});
  const auto gradients = [&](const auto& f) {
    for (const Tensor& t : {x, y, scale}) t.set_grad({});
    differentiate(f);
    return std::vector{values(x.grad()), values(y.grad()),
                       scale.grad() ? values(scale.grad()) : std::vector<float>()};
  };
  for (const double rate : {0.0, 0.5}) {
    const ops::Dropout dropout{.rate = rate, .key = {1, 2}, .broadcast_length = false};
    const auto fused = [&] { return ops::add_rms_norm(x, y, scale, dropout); };
    const auto plain = [&] {
      const Tensor sum = ops::add(x, y, dropout);
      return ops::ResidualNorm{sum, ops::rms_norm(sum, scale)};
    };
    const auto both = [](const ops::ResidualNorm& r) { return ops::add(r.x_new, r.out); };
    const auto want = gradients([&] { return both(plain()); });
    EXPECT_EQ(gradients([&] { return both(fused()); }), want);
    EXPECT_EQ(gradients([&] { return fused().x_new; }), gradients([&] { return plain().x_new; }));
    EXPECT_EQ(gradients([&] { return fused().out; }), gradients([&] { return plain().out; }));
    EXPECT_NE(gradients([&] { return fused().out; }), want);
  }
}

TEST(Tape, KeepsLessWithRematAndNothingAfterwards) {
  const int64_t n = 1 << 16;
  const Tensor x = leaf({{"n", n}});
  const auto chain = [](const Tensors& in) {
    Tensor y = in[0];
    for (int i = 0; i < 8; ++i) y = ops::rms_norm(y, in[1]);
    return Tensors{y};
  };
  const Tensor scale = leaf({{"n", n}});
  const int64_t before = Memory::host().used_bytes();
  const auto held = [&](bool again) {
    Tape tape;
    Tape::Recording recording(tape);
    const Tensor y = again ? remat(chain, {x, scale})[0] : chain({x, scale})[0];
    return Memory::host().used_bytes() - before;
  };
  EXPECT_GE(held(false), 8 * n * 4);
  EXPECT_LT(held(true), 2 * n * 4);
  EXPECT_EQ(Memory::host().used_bytes(), before);
}

TEST(Tape, RecordsNothingWhenPaused) {
  const Tensor x = leaf({{"n", 2}});
  Tape tape;
  Tape::Recording recording(tape);
  Tape::Recording paused(nullptr);
  EXPECT_FALSE(ops::scale(x, 3).needs_grad());
}

}  // namespace
}  // namespace quintet
