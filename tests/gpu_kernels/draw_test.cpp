// Draws of many requests at once, each by its own parameters, against choose_token.

#include "models/decoding/search/token_choice.h"
#include "tests/gpu_kernels/on_device.h"

namespace quintet::testing {
namespace {

using decoding::choose_token;
using decoding::SamplingParameters;

class Draws : public DeviceTest {
 protected:
  static constexpr DrawnToken kUntouched{-7, -7, -7};

  std::vector<DrawnToken> drawn(const std::vector<float>& logits, int64_t vocab,
                                const std::vector<RowDraw>& draws) {
    const OnDevice<float> there(device(), logits);
    const OnDevice<RowDraw> asked(device(), draws);
    const OnDevice<DrawnToken> got(device(), std::vector<DrawnToken>(draws.size(), kUntouched));
    const DrawRows task{.logits = there.data(),
                        .vocab = vocab,
                        .count = std::ssize(draws),
                        .draws = asked.data(),
                        .drawn = got.data()};
    run_behind_writers(
        device(), [&] { device().kernels().draw(task, device().stream()); }, there, asked);
    return got.back();
  }
};

const SamplingParameters kParameters[] = {
    {.temperature = 1},
    {.temperature = 0.3f, .seed = 5},
    {.temperature = 1, .top_k = 1},
    {.temperature = 1.5f, .top_k = 40},
    {.temperature = 1, .top_k = 5000},
    {.temperature = 1, .top_p = 0.9f},
    {.temperature = 20, .top_p = 0.5f},
    {.temperature = 0.7f, .top_k = 300, .top_p = 0.8f},
    {.temperature = 3, .top_k = 7, .top_p = 0.3f, .seed = uint64_t{1} << 40},
};

TEST_F(Draws, AreThoseOfTheHostEachByItsOwnRules) {
  constexpr int64_t kRows = 3, kVocab = 1237;
  std::vector<float> logits = normals(kRows * kVocab, 4, 2.5f);
  for (size_t i = 0; i < logits.size(); i += 3) logits[i] = std::round(logits[i]);  // ties
  std::vector<RowDraw> draws;
  std::vector<decoding::TokenChoice> want;
  for (const SamplingParameters& parameters : kParameters)
    for (int32_t decode = 0; decode < 4; ++decode) {
      const auto row = static_cast<int32_t>((decode + parameters.top_k) % kRows);
      draws.push_back({.row = row,
                       .temperature = parameters.temperature,
                       .topp = parameters.top_p < 1 ? parameters.top_p : 0,
                       .topk = parameters.top_k,
                       .key = decoding::draw_key(parameters.seed, decode, 3)});
      std::vector<float> copy(logits.begin() + row * kVocab, logits.begin() + (row + 1) * kVocab);
      want.push_back(choose_token(copy, parameters, decode, 3));
    }
  on_every_schedule([&] {
    const std::vector<DrawnToken> got = drawn(logits, kVocab, draws);
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(got[i].token, want[i].token) << "draw " << i;
      // Sums over the vocabulary in another order: as gpu_ops/sample_test.cpp.
      EXPECT_NEAR(got[i].log_prob, want[i].log_prob, 2e-5) << "draw " << i;
      EXPECT_EQ(got[i].logit, logits[static_cast<size_t>(draws[i].row * kVocab + got[i].token)]);
    }
  });
}

TEST_F(Draws, GivenTokensHaveTheirLogitsAndWhatIsNotWantedIsLeftAlone) {
  const std::vector<float> logits{1, 2, 3, 4, 5, -INFINITY};
  const std::vector<DrawnToken> got = drawn(
      logits, 3, {{.row = 1, .token = 0}, {}, {.row = 1, .token = 2}, {.row = 0, .token = 1}});
  EXPECT_EQ(got[0].token, 0);
  EXPECT_EQ(got[0].logit, 4);
  EXPECT_EQ(got[1].token, kUntouched.token);
  EXPECT_EQ(got[2].logit, -INFINITY);
  EXPECT_EQ(got[3].logit, 2);
}

TEST_F(Draws, ARowOfNanGivesATokenOfTheVocabulary) {
  const std::vector<float> logits(5, NAN);
  const std::vector<DrawnToken> got = drawn(logits, 5, {{.row = 0}, {.row = 0, .topk = 2}});
  for (const DrawnToken& token : got) {
    EXPECT_EQ(token.token, 0);
    EXPECT_TRUE(std::isnan(token.logit));
  }
}

}  // namespace
}  // namespace quintet::testing
