// Drawing on the emulated GPU gives the tokens that the CPU's filters and draws give, row by row,
// for every rule, temperature and element type, under three schedules.

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/logits/logits.h"
#include "kernels/logits/sample_rows.h"
#include "models/decoding/search/filters.h"
#include "runtime/base/dtype.h"
#include "tests/simt/schedules.h"

namespace quintet::emulated {
void sample_gpu(const SampleRows& rows, Stream stream);
}  // namespace quintet::emulated

namespace quintet {
namespace {

namespace emulator = emulated::simt::emulator;
constexpr float kNegInf = -1.0e7f;

struct Rule {
  const char* name;
  int64_t topk;
  float topp;
  std::vector<float> temperatures;
  bool rescale = true;
};
const Rule kRules[] = {{"Greedy", 0, 0, {0.0f}},
                       {"GreedyLogProbs", 0, 0, {0.0f}, false},
                       {"All", 0, 0, {1.0f}},
                       {"AllCold", 0, 0, {0.3f}, false},
                       {"TopOne", 1, 0, {1.0f}},
                       {"TopFew", 7, 0, {0.8f}},
                       {"TopMany", 300, 0, {1.5f}, false},
                       {"TopMoreThanThereAre", 5000, 0, {1.0f}},
                       {"Likely", 0, 0.9f, {1.0f}},
                       {"LikelyFlat", 0, 0.5f, {20.0f}},
                       {"LikelyFew", 0, 0.2f, {0.5f}, false},
                       {"LikelyAll", 0, 1.0f, {1.0f}},
                       {"OfEachItem", 0, 0.8f, {1.0f, 0.0f, 2.0f}}};

class Sample : public ::testing::TestWithParam<std::tuple<Rule, DType, uint64_t>> {
 protected:
  void SetUp() override { emulator::set_seed(std::get<2>(GetParam())); }
};

struct Expected {
  int64_t token;
  float log_prob;
};

/// temperature_sample's draw of one row.
Expected draw_on_the_cpu(std::vector<float> x, float temperature, const Rule& rule, Key key,
                         uint64_t first) {
  const auto log_prob = [](const std::vector<float>& row, int64_t token) {
    const RowSummary s = summarize(row);
    return (row[static_cast<size_t>(token)] - s.max) - s.log_sum;
  };
  if (!(temperature > 1e-4f)) {
    const int64_t token = argmax(x);
    return {token, rule.rescale ? 0.0f : log_prob(x, token)};
  }
  const std::vector<float> original = x;
  std::vector<float> scratch;
  divide(x, temperature);
  if (rule.topk > 0) decoding::topk_mask(x, rule.topk, kNegInf, scratch);
  if (rule.topp > 0) decoding::topp_mask(x, rule.topp, kNegInf, scratch);
  const int64_t token = draw_categorical(x, key, first);
  return {token, log_prob(rule.rescale ? x : original, token)};
}

TEST_P(Sample, DrawsWhatTheCpuDraws) {
  const auto& [rule, dtype, seed] = GetParam();
  constexpr int64_t kItems = 3, kDecodes = 2, kVocab = 1237, kStride = 1240;
  std::mt19937 random(11);
  std::normal_distribution<float> draw(0, 2.5f);
  std::vector<float> logits;
  std::vector<bfloat16> rounded;
  for (int64_t i = 0; i < kItems * kDecodes * kStride; ++i) {
    // Whole steps make ties; columns behind the vocabulary must not be read.
    const float x = i % kStride >= kVocab ? 1e9f
                    : i % 3 == 0          ? std::round(draw(random))
                                          : draw(random);
    rounded.push_back(bfloat16(x));
    logits.push_back(dtype == DType::bf16 ? static_cast<float>(rounded.back()) : x);
  }
  // Rows of the batch that still run: not all.
  const std::vector<int32_t> row_ids{0, 2, 3, 4};
  const Key key{123, 456};
  std::vector<int32_t> tokens(row_ids.size(), -1);
  std::vector<float> log_probs(row_ids.size(), std::nanf(""));
  const SampleRows rows{.dtype = dtype,
                        .logits = dtype == DType::bf16 ? static_cast<const void*>(rounded.data())
                                                       : static_cast<const void*>(logits.data()),
                        .rows = static_cast<int64_t>(row_ids.size()),
                        .vocab = kVocab,
                        .stride = kStride,
                        .row_ids = row_ids.data(),
                        .num_decodes = kDecodes,
                        .temperatures = rule.temperatures.data(),
                        .has_one_temperature = rule.temperatures.size() == 1,
                        .topk = rule.topk,
                        .topp = rule.topp,
                        .rescale_log_probs = rule.rescale,
                        .key = &key,
                        .tokens = tokens.data(),
                        .log_probs = log_probs.data()};
  emulated::sample_gpu(rows, {});
  for (size_t i = 0; i < row_ids.size(); ++i) {
    const auto begin = logits.begin() + static_cast<int64_t>(i) * kStride;
    const auto item = static_cast<size_t>(row_ids[i] / kDecodes);
    const float temperature = rule.temperatures[rule.temperatures.size() == 1 ? 0 : item];
    const auto first = static_cast<uint64_t>(row_ids[i]) * kVocab;
    const Expected want = draw_on_the_cpu({begin, begin + kVocab}, temperature, rule, key, first);
    EXPECT_EQ(tokens[i], want.token) << "row " << row_ids[i];
    EXPECT_NEAR(log_probs[i], want.log_prob, 2e-5) << "row " << row_ids[i];
  }
}

INSTANTIATE_TEST_SUITE_P(, Sample,
                         ::testing::Combine(::testing::ValuesIn(kRules),
                                            ::testing::Values(DType::f32, DType::bf16),
                                            ::testing::ValuesIn(testing::kSchedules)),
                         [](const auto& named) {
                           return fmt::format(
                               "{}{}Seed{}", std::get<0>(named.param).name,
                               std::get<1>(named.param) == DType::bf16 ? "Bf16" : "F32",
                               std::get<2>(named.param));
                         });

TEST(SampleAlone, ShortRowsAndNanAreDrawnFrom) {
  const std::vector<float> logits{std::nanf(""), -1.0f, -INFINITY, -0.5f};
  emulator::set_seed(1);
  const float temperature = 1;
  for (const int64_t topk : {int64_t{0}, int64_t{1}}) {
    for (uint32_t seed = 0; seed < 5; ++seed) {
      const Key key{0, seed};
      int32_t token = -1;
      float log_prob = 0;
      SampleRows rows{.logits = logits.data(),
                      .rows = 1,
                      .vocab = 4,
                      .stride = 4,
                      .temperatures = &temperature,
                      .topk = topk,
                      .key = &key,
                      .tokens = &token,
                      .log_probs = &log_prob};
      emulated::sample_gpu(rows, {});
      const float first = -1.0f + gumbel_noise(key, 1), second = -0.5f + gumbel_noise(key, 3);
      EXPECT_EQ(token, topk == 1 || second > first ? 3 : 1);
      const double total = std::exp(-1.0) + std::exp(-0.5);
      const double want = topk == 1 ? 0 : (token == 3 ? -0.5 : -1.0) - std::log(total);
      EXPECT_NEAR(log_prob, want, 1e-6);
    }
  }
}

// As those of rows that rest may be. Nothing beyond the row is read.
TEST(SampleAlone, ARowOfNanAloneGivesATokenOfTheVocabulary) {
  const std::vector<float> logits(5, std::nanf(""));
  const float temperature = 1;
  const Key key{0, 1};
  for (const auto& [topk, topp] : {std::pair{0, 0.0f}, {2, 0.0f}, {0, 0.5f}}) {
    int32_t token = -1;
    float log_prob = 0;
    emulated::sample_gpu({.logits = logits.data(),
                          .rows = 1,
                          .vocab = 5,
                          .stride = 5,
                          .temperatures = &temperature,
                          .topk = topk,
                          .topp = topp,
                          .key = &key,
                          .tokens = &token,
                          .log_probs = &log_prob},
                         {});
    EXPECT_EQ(token, 0);
    EXPECT_TRUE(std::isnan(log_prob));
  }
}

}  // namespace
}  // namespace quintet
