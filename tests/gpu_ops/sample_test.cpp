// Drawing on a device gives the tokens that the CPU's filters and draws give, row by row,
// for every rule, temperature and element type, under three schedules.

#include "kernels/logits/logits.h"
#include "models/decoding/search/filters.h"
#include "tests/gpu_kernels/on_device.h"

namespace quintet::testing {
namespace {

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

struct Drawn {
  std::vector<int32_t> tokens;
  std::vector<float> log_probs;
};
/// What a row of the batch after the other draws; pointers of `rows` are to the host's memory.
template <typename T>
Drawn sample(Device& device, SampleRows rows, const std::vector<T>& logits,
             const std::vector<float>& temperatures, Key key) {
  const auto count = static_cast<size_t>(rows.rows);
  const OnDevice<T> logits_there(device, logits);
  const OnDevice<float> temperatures_there(device, temperatures),
      log_probs(device, std::vector<float>(count, std::nanf("")));
  const OnDevice<Key> key_there(device, {key});
  const OnDevice<int32_t> tokens(device, std::vector<int32_t>(count, -1));
  std::optional<OnDevice<int32_t>> ids;
  if (rows.row_ids != nullptr)
    rows.row_ids =
        ids.emplace(device, std::vector<int32_t>(rows.row_ids, rows.row_ids + count)).data();
  rows.logits = logits_there.data();
  rows.temperatures = temperatures_there.data();
  rows.has_one_temperature = temperatures.size() == 1;
  rows.key = key_there.data();
  rows.tokens = tokens.data();
  rows.log_probs = log_probs.data();
  device.kernels().sample(rows, device.stream());
  return {tokens.back(), log_probs.back()};
}

class Sample : public DeviceTest,
               public ::testing::WithParamInterface<std::tuple<Rule, DType, uint64_t>> {
 protected:
  Sample() { emulated::simt::emulator::set_seed(std::get<2>(GetParam())); }
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
  const SampleRows rows{.dtype = dtype,
                        .rows = static_cast<int64_t>(row_ids.size()),
                        .vocab = kVocab,
                        .stride = kStride,
                        .row_ids = row_ids.data(),
                        .num_decodes = kDecodes,
                        .topk = rule.topk,
                        .topp = rule.topp,
                        .rescale_log_probs = rule.rescale};
  const auto [tokens, log_probs] = dtype == DType::bf16
                                       ? sample(device(), rows, rounded, rule.temperatures, key)
                                       : sample(device(), rows, logits, rule.temperatures, key);
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
                                            ::testing::ValuesIn(kSchedules)),
                         [](const auto& named) {
                           return fmt::format(
                               "{}{}Seed{}", std::get<0>(named.param).name,
                               std::get<1>(named.param) == DType::bf16 ? "Bf16" : "F32",
                               std::get<2>(named.param));
                         });

class SampleAlone : public DeviceTest {
 protected:
  std::pair<int32_t, float> drawn(const std::vector<float>& logits, int64_t topk, float topp,
                                  Key key) {
    const auto vocab = static_cast<int64_t>(logits.size());
    const Drawn one =
        sample(device(), {.rows = 1, .vocab = vocab, .stride = vocab, .topk = topk, .topp = topp},
               logits, {1}, key);
    return {one.tokens[0], one.log_probs[0]};
  }
};

TEST_F(SampleAlone, ShortRowsAndNanAreDrawnFrom) {
  emulated::simt::emulator::set_seed(1);
  for (const int64_t topk : {int64_t{0}, int64_t{1}}) {
    for (uint32_t seed = 0; seed < 5; ++seed) {
      const Key key{0, seed};
      const auto [token, log_prob] = drawn({std::nanf(""), -1.0f, -INFINITY, -0.5f}, topk, 0, key);
      const float first = -1.0f + gumbel_noise(key, 1), second = -0.5f + gumbel_noise(key, 3);
      EXPECT_EQ(token, topk == 1 || second > first ? 3 : 1);
      const double total = std::exp(-1.0) + std::exp(-0.5);
      const double want = topk == 1 ? 0 : (token == 3 ? -0.5 : -1.0) - std::log(total);
      EXPECT_NEAR(log_prob, want, 1e-6);
    }
  }
}

// As those of rows that rest may be. Nothing beyond the row is read.
TEST_F(SampleAlone, ARowOfNanAloneGivesATokenOfTheVocabulary) {
  for (const auto& [topk, topp] : {std::pair{0, 0.0f}, {2, 0.0f}, {0, 0.5f}}) {
    const auto [token, log_prob] = drawn(std::vector<float>(5, std::nanf("")), topk, topp, {0, 1});
    EXPECT_EQ(token, 0);
    EXPECT_TRUE(std::isnan(log_prob));
  }
}

}  // namespace
}  // namespace quintet::testing
