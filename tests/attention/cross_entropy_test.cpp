// What the op cases cannot show of cross-entropy: errors, NaN, threads, instruction sets, large
// logits.

#include "kernels/cross_entropy/cross_entropy.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <omp.h>

#include <cmath>
#include <limits>

#include "runtime/base/host_array.h"
#include "tests/harness/threads.h"

namespace quintet::testing {
namespace {

// A call with x [tokens, width] and w [width, vocabulary] of small, distinct values.
struct Call {
  HostArray x, w, targets, weights;
  HostArray loss{DType::f32, {}}, z_loss{DType::f32, {}}, correct{DType::f32, {}};
  HostArray log_probability, dx, dw;
  Attrs attrs{{"label_smoothing", 0.1}, {"z_loss", 0.01}};

  Call(int64_t tokens, int64_t width, int64_t vocabulary)
      : x(DType::f32, {tokens, width}),
        w(DType::f32, {width, vocabulary}),
        targets(DType::i32, {tokens}),
        weights(DType::f32, {tokens}),
        log_probability(DType::f32, {tokens}),
        dx(DType::f32, {tokens, width}),
        dw(DType::f32, {width, vocabulary}) {
    float value = 0.1F;
    for (HostArray* a : {&x, &w})
      for (float& v : a->as<float>()) v = value = std::fmod(value * 1.7F + 0.31F, 2.0F) - 0.5F;
    int32_t target = 0;
    for (int32_t& t : targets.as<int32_t>()) t = (target++ * 7) % static_cast<int32_t>(vocabulary);
    for (float& v : weights.as<float>()) v = 1;
  }
  void run() {
    const auto view = [](HostArray& a) { return View::of(a.as<float>().data(), a.shape); };
    const std::vector<View> in{
        view(x), view(w), View::of(targets.as<int32_t>().data(), targets.shape), view(weights)};
    const std::vector<View> out{view(loss), view(z_loss), view(correct), view(log_probability),
                                view(dx),   view(dw)};
    cross_entropy_cpu(in, out, attrs, {});
  }
  double loss_value() const { return static_cast<double>(loss.as<float>()[0]); }
};

TEST(CrossEntropy, ATargetOutsideTheVocabularyIsNamedUnlessItsWeightIsZero) {
  Call call(5, 3, 11);
  call.targets.as<int32_t>()[3] = 11;
  try {
    call.run();
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kData);
    EXPECT_NE(std::string(e.what()).find("target 11 at position 3 of 5"), std::string::npos)
        << e.what();
  }
  call.weights.as<float>()[3] = 0;
  call.run();
  EXPECT_TRUE(std::isfinite(call.loss_value()));
  EXPECT_EQ(call.log_probability.as<float>()[3], 0);
}

TEST(CrossEntropy, ANanReachesTheLossAndTheGradientsOfItsToken) {
  for (const size_t at : {size_t{0}, size_t{6}}) {
    Call call(5, 3, 700);
    call.x.as<float>()[at] = std::numeric_limits<float>::quiet_NaN();
    call.run();
    EXPECT_TRUE(std::isnan(call.loss_value()));
    for (size_t i = 0; i < 15; ++i)
      EXPECT_EQ(std::isnan(call.dx.as<float>()[i]), i / 3 == at / 3) << i;
    EXPECT_TRUE(std::isnan(call.dw.as<float>()[0]));
    EXPECT_TRUE(std::isnan(call.log_probability.as<float>()[at / 3]));
  }
}

TEST(CrossEntropy, ANanInOneColumnReachesTheLoss) {
  for (const size_t column : {size_t{0}, size_t{650}, size_t{699}}) {
    Call call(5, 3, 700);
    call.w.as<float>()[column] = std::numeric_limits<float>::quiet_NaN();
    call.run();
    EXPECT_TRUE(std::isnan(call.loss_value())) << column;
  }
}

TEST(CrossEntropy, LargeLogitsNeitherOverflowNorLoseTheLoss) {
  Call call(2, 1, 3);
  call.attrs = {};
  for (int64_t i = 0; i < 2; ++i) call.x.as<float>()[static_cast<size_t>(i)] = 1;
  const float logits[] = {3000.0F, -3000.0F, 2999.0F};
  std::copy(logits, logits + 3, call.w.as<float>().begin());
  call.targets.as<int32_t>()[0] = 0;
  call.targets.as<int32_t>()[1] = 1;
  call.run();
  const double lse = 3000 + std::log1p(std::exp(-1.0));
  EXPECT_NEAR(call.log_probability.as<float>()[0], 3000 - lse, 1e-6);
  EXPECT_NEAR(call.log_probability.as<float>()[1], -3000 - lse, 1e-3);
  EXPECT_NEAR(call.loss_value(), 2 * lse, 1e-3);
  EXPECT_EQ(call.correct.as<float>()[0], 1);
}

std::vector<std::byte> bytes_of(const Call& call) {
  std::vector<std::byte> all;
  for (const HostArray* a :
       {&call.loss, &call.z_loss, &call.correct, &call.log_probability, &call.dw})
    all.insert(all.end(), a->bytes.begin(), a->bytes.end());
  return all;
}

// Large enough for several threads, chunks and blocks.
TEST(CrossEntropy, ThreadsChangeNothingButTheRoundingOfDx) {
  const int before = omp_get_max_threads();
  std::vector<std::vector<std::byte>> seen;
  std::vector<HostArray> dx;
  for (const int threads : {1, 2, 5}) {
    use_threads(threads);
    Call call(600, 16, 1500);
    call.run();
    seen.push_back(bytes_of(call));
    dx.push_back(call.dx);
    Call again(600, 16, 1500);
    again.run();
    EXPECT_EQ(again.dx.bytes, call.dx.bytes) << threads << " threads";
  }
  use_threads(before);
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
  for (size_t i = 0; i < dx[0].as<float>().size(); ++i)
    ASSERT_NEAR(dx[0].as<float>()[i], dx[2].as<float>()[i], 1e-5) << i;
}

TEST(CrossEntropy, InstructionSetsAgree) {
  const std::vector<int64_t> all = hwy::SupportedAndGeneratedTargets();
  ASSERT_FALSE(all.empty());
  Call want(20, 6, 205);
  want.run();
  for (const int64_t target : all) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    Call got(20, 6, 205);
    got.run();
    EXPECT_NEAR(got.loss_value(), want.loss_value(), 1e-6 * want.loss_value());
    for (const auto member : {&Call::dx, &Call::dw, &Call::log_probability})
      for (size_t i = 0; i < (got.*member).as<float>().size(); ++i)
        ASSERT_NEAR((got.*member).as<float>()[i], (want.*member).as<float>()[i], 1e-5) << i;
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(CrossEntropy, MistakesInAttributesAreNamed) {
  Call call(2, 3, 5);
  call.attrs = {{"label_smoothing", 1.0}};
  EXPECT_THROW(call.run(), Error);
}

}  // namespace
}  // namespace quintet::testing
