// The searches on hand-made logits: what they return is worked out by hand or by trying everything.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "models/decoding/search/beam_search.h"
#include "models/decoding/search/temperature_sample.h"

namespace quintet::decoding {
namespace {

constexpr int32_t kEos = 1;

/// Logits that depend on the tokens read so far: a table row by the last token, or a function of
/// the whole history, which follows `sources` as a cache would.
class TableModel : public TokenModel {
 public:
  using History = std::vector<int32_t>;
  TableModel(int64_t vocab, std::function<std::vector<float>(const History&)> logits)
      : vocab_(vocab), logits_(std::move(logits)) {}

  int64_t vocab_size() const override { return vocab_; }
  std::span<float> step(const StepInput& input) override {
    std::map<int32_t, History> next;
    out_.clear();
    for (size_t i = 0; i < input.rows.size(); ++i) {
      History history = histories_[input.sources.empty() ? input.rows[i] : input.sources[i]];
      history.resize(static_cast<size_t>(input.positions[i]));
      history.push_back(input.tokens[i]);
      const auto row = logits_(history);
      out_.insert(out_.end(), row.begin(), row.end());
      next[input.rows[i]] = std::move(history);
    }
    for (auto& [row, history] : next) histories_[row] = std::move(history);
    rows_per_step.push_back(input.rows.size());
    return out_;
  }

  std::vector<size_t> rows_per_step;

 private:
  int64_t vocab_;
  std::function<std::vector<float>(const History&)> logits_;
  std::map<int32_t, History> histories_;
  std::vector<float> out_;
};

/// Pseudo-random logits from the whole history; padding is never likely.
std::vector<float> hashed_logits(const TableModel::History& history, int64_t vocab, uint32_t seed) {
  uint32_t state = seed;
  for (int32_t token : history)
    state = state * 1664525u + static_cast<uint32_t>(token) + 1013904223u;
  std::mt19937 random(state);
  std::normal_distribution<float> normal;
  std::vector<float> row(static_cast<size_t>(vocab));
  for (float& x : row) x = normal(random);
  row[0] = -30;
  return row;
}

double log_softmax(const std::vector<float>& row, int32_t token) {
  double sum = 0;
  for (float x : row) sum += std::exp(static_cast<double>(x));
  return static_cast<double>(row[static_cast<size_t>(token)]) - std::log(sum);
}

std::vector<int32_t> to_vector(std::span<const int32_t> s) { return {s.begin(), s.end()}; }

SampleOptions greedy() { return {.temperature = {0.0f}, .rescale_log_probs = false}; }

TEST(TemperatureSample, GreedyTakesTheFirstOfTheBestTokens) {
  TableModel model(5, [](const auto& history) {
    return history.size() == 1 ? std::vector<float>{0, 0, 3, 3, 1}
                               : std::vector<float>{0, 9, 0, 0, 0};
  });
  const std::vector<int32_t> start(4, 0);
  const Decodes out = temperature_sample({1, 4, start}, model, kEos, greedy());
  EXPECT_EQ(to_vector(out.best(0)), (std::vector<int32_t>{2, 1, 0, 0}));
  const double want = log_softmax({0, 0, 3, 3, 1}, 2) + log_softmax({0, 9, 0, 0, 0}, 1);
  EXPECT_NEAR(out.best_score(0), want, 1e-5);
  EXPECT_EQ(model.rows_per_step.size(), 2u);
}

TEST(TemperatureSample, RowsThatEndedRestAndChangeNothing) {
  // Item i ends after i + 1 tokens.
  const auto logits = [](const TableModel::History& h) {
    std::vector<float> row(8, 0);
    const int32_t wanted = h.size() == 1 ? 2 + h[0] : h.back() == 3 ? 1 : h.back() - 1;
    row[static_cast<size_t>(wanted)] = 9;
    return row;
  };
  TableModel model(8, logits);
  const std::vector<int32_t> start{0, 3, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0};
  const Decodes out = temperature_sample({2, 6, start}, model, kEos, greedy());
  EXPECT_EQ(to_vector(out.best(0)), (std::vector<int32_t>{3, 1, 0, 0, 0, 0}));
  EXPECT_EQ(to_vector(out.best(1)), (std::vector<int32_t>{5, 4, 3, 1, 0, 0}));
  EXPECT_EQ(model.rows_per_step, (std::vector<size_t>{2, 2, 1, 1}));
}

TEST(TemperatureSample, PromptsAreKeptAndNotScored) {
  TableModel model(6, [](const auto&) { return std::vector<float>{0, 0, 0, 0, 5, 0}; });
  const std::vector<int32_t> prompt{0, 3, 1, 0, 0};  // an end token of the prompt ends nothing
  const Decodes out = temperature_sample({1, 5, prompt}, model, kEos, greedy());
  EXPECT_EQ(to_vector(out.best(0)), (std::vector<int32_t>{3, 1, 4, 4, 4}));
  EXPECT_NEAR(out.best_score(0), 3 * log_softmax({0, 0, 0, 0, 5, 0}, 4), 1e-5);
}

TEST(TemperatureSample, StepsAreCountedAfterThePromptAndLimited) {
  TableModel model(6, [](const auto&) { return std::vector<float>{0, 0, 0, 0, 5, 0}; });
  const std::vector<int32_t> prompts{0, 3, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0};
  SampleOptions options = greedy();
  options.max_decode_steps = 2;
  Decodes out = temperature_sample({2, 6, prompts}, model, kEos, options);
  EXPECT_EQ(to_vector(out.best(0)), (std::vector<int32_t>{3, 2, 4, 4, 0, 0}));
  EXPECT_EQ(to_vector(out.best(1)), (std::vector<int32_t>{2, 4, 4, 0, 0, 0}));
  options.max_decode_steps_hard_limit = 1;
  out = temperature_sample({2, 6, prompts}, model, kEos, options);
  EXPECT_EQ(to_vector(out.best(0)), (std::vector<int32_t>{3, 2, 4, 0, 0, 0}));
  options.max_decode_steps_hard_limit = 0;  // no limit
  options.max_decode_steps = 7;
  EXPECT_THROW(temperature_sample({2, 6, prompts}, model, kEos, options), Error);
}

/// T5X's third example: prompts of different lengths whose cache is filled, the longer row waiting.
TEST(TemperatureSample, DecodingStartsAtEachRowsInitialIndex) {
  TableModel model(9, [](const TableModel::History& h) {
    std::vector<float> row(9, 0);
    row[static_cast<size_t>(h.size() % 3 + 5)] = 4;
    return row;
  });
  const std::vector<int32_t> inputs{0, 5, 2, 6, 3, 0, 0, 8, 3, 0, 0, 0};
  SampleOptions options = greedy();
  options.initial_index = std::vector<int32_t>{4, 2};
  const Decodes out = temperature_sample({2, 6, inputs}, model, kEos, options);
  EXPECT_EQ(to_vector(out.best(0)), (std::vector<int32_t>{5, 2, 6, 3, 7, 5}));
  EXPECT_EQ(to_vector(out.best(1)), (std::vector<int32_t>{8, 3, 5, 6, 7, 5}));
  EXPECT_EQ(model.rows_per_step, (std::vector<size_t>{2, 2, 1, 1}));
}

TEST(TemperatureSample, DecodesComeByIncreasingScoreAndDependOnTheKeyAlone) {
  TableModel model(30, [](const auto& h) { return hashed_logits(h, 30, 3); });
  const std::vector<int32_t> start(2 * 7, 0);
  SampleOptions options{.decode_rng = key_from_seed(11), .num_decodes = 5, .topk = 0};
  const Decodes a = temperature_sample({2, 7, start}, model, kEos, options);
  const Decodes b = temperature_sample({2, 7, start}, model, kEos, options);
  EXPECT_EQ(a.tokens, b.tokens);
  for (int64_t item = 0; item < 2; ++item)
    for (size_t d = 1; d < 5; ++d)
      EXPECT_LE(a.scores[static_cast<size_t>(item) * 5 + d - 1],
                a.scores[static_cast<size_t>(item) * 5 + d]);
  options.decode_rng = key_from_seed(12);
  EXPECT_NE(a.tokens, temperature_sample({2, 7, start}, model, kEos, options).tokens);
}

TEST(TemperatureSample, EachItemMayHaveItsOwnTemperature) {
  TableModel model(30, [](const auto& h) { return hashed_logits(h, 30, 3); });
  const std::vector<int32_t> start(2 * 6, 0);
  SampleOptions options{
      .num_decodes = 20, .temperature = {0.0f, 2.0f}, .topk = 0, .rescale_log_probs = false};
  const Decodes out = temperature_sample({2, 6, start}, model, kEos, options);
  std::map<std::vector<int32_t>, int> cold, hot;
  for (int64_t d = 0; d < 20; ++d) {
    ++cold[to_vector(out.sequence(0, d))];
    ++hot[to_vector(out.sequence(1, d))];
  }
  EXPECT_EQ(cold.size(), 1u);
  EXPECT_GT(hot.size(), 10u);
}

TEST(TemperatureSample, CallbacksSeeAndChangeStateAndLogits) {
  TableModel model(6, [](const auto&) { return std::vector<float>{0, 0, 0, 0, 5, 0}; });
  const std::vector<int32_t> start(4, 0);
  SampleOptions options = greedy();
  int states = 0;
  options.state_callback_fn = [&](SamplingState& state) {
    EXPECT_EQ(state.step, states++);
    if (state.step == 2) state.sequences[2] = 3;  // rewrites the second token
  };
  options.logit_callback_fn = [](std::span<float> logits, const SamplingState& state) {
    if (state.step == 0) logits[5] = 50;
  };
  const Decodes out = temperature_sample({1, 4, start}, model, kEos, options);
  EXPECT_EQ(to_vector(out.best(0)), (std::vector<int32_t>{5, 3, 4, 4}));
  EXPECT_EQ(states, 5);  // before each of 4 steps, and at the end
}

TEST(TemperatureSample, MistakesAreNamed) {
  TableModel model(6, [](const auto&) { return std::vector<float>(6, 0); });
  const std::vector<int32_t> start(4, 0);
  const auto fails = [&](const SampleOptions& options) {
    EXPECT_THROW(temperature_sample({2, 2, start}, model, kEos, options), Error);
  };
  fails({.topk = 2, .topp = 0.5f});
  fails({.num_decodes = 0});
  fails({.temperature = {1, 1, 1}});
  fails({.initial_index = std::vector<int32_t>{1}});
  EXPECT_THROW(temperature_sample({0, 4, {}}, model, kEos, {}), Error);
}

/// All sequences that end within `length` tokens, with their scores: the truth for a search whose
/// beam is wide enough to lose nothing.
void enumerate(const TableModel::History& history, double log_prob, size_t length, float alpha,
               int64_t vocab, std::vector<std::pair<double, std::vector<int32_t>>>& out) {
  const auto row = hashed_logits(history, vocab, 5);
  const size_t made = history.size();
  const double ended = (log_prob + log_softmax(row, kEos)) /
                       std::pow((5.0 + static_cast<double>(made)) / 6.0, alpha);
  std::vector<int32_t> tokens(history.begin() + 1, history.end());
  tokens.push_back(kEos);
  tokens.resize(length, 0);
  out.emplace_back(ended, tokens);
  if (made == length) return;
  for (int32_t t = 0; t < vocab; ++t) {
    if (t == kEos) continue;
    TableModel::History next = history;
    next.push_back(t);
    enumerate(next, log_prob + log_softmax(row, t), length, alpha, vocab, out);
  }
}

TEST(BeamSearch, AWideBeamFindsTheBestOfAllSequences) {
  constexpr int64_t kVocab = 4, kLength = 3, kBeams = 40;
  for (const float alpha : {0.0f, 0.6f, 1.5f}) {
    SCOPED_TRACE(alpha);
    TableModel model(kVocab, [](const auto& h) { return hashed_logits(h, kVocab, 5); });
    const std::vector<int32_t> start(kLength, 0);
    const Decodes out =
        beam_search({1, kLength, start}, model, kEos, {.num_decodes = kBeams, .alpha = alpha});
    std::vector<std::pair<double, std::vector<int32_t>>> all;
    enumerate({0}, 0, kLength, alpha, kVocab, all);
    std::sort(all.begin(), all.end());
    for (size_t i = 0; i < std::min<size_t>(all.size(), 10); ++i) {
      const auto& [score, tokens] = all[all.size() - 1 - i];
      const auto d = static_cast<int64_t>(kBeams - 1 - static_cast<int64_t>(i));
      EXPECT_EQ(to_vector(out.sequence(0, d)), tokens) << "rank " << i;
      EXPECT_NEAR(out.scores[static_cast<size_t>(d)], score, 1e-4);
    }
  }
}

TEST(BeamSearch, OneBeamIsNotGreedyWhenEndingEarlyScoresBetter) {
  // "2 1" against "1": the second candidate of the first step ends, and is remembered.
  TableModel model(4, [](const TableModel::History& h) {
    return h.size() == 1 ? std::vector<float>{-9, 2.0f, 2.1f, -9}
                         : std::vector<float>{-9, 0.5f, 0.4f, 0.3f};
  });
  const std::vector<int32_t> start(5, 0);
  const Decodes out = beam_search({1, 5, start}, model, kEos, {.num_decodes = 1, .alpha = 0});
  EXPECT_EQ(to_vector(out.best(0)), (std::vector<int32_t>{1, 0, 0, 0, 0}));
}

TEST(BeamSearch, UnfilledSlotsAreZerosAndUnfinishedItemsReturnTheirLiveBeams) {
  // Item 0 ends at once and only once; item 1 never does.
  TableModel model(6, [](const TableModel::History& h) {
    std::vector<float> row{-50, -50, 1, 2, 3, 4};
    if (h.size() == 2 && h[1] == 5) row[1] = 20;
    return row;
  });
  TableModel endless(6, [](const auto&) { return std::vector<float>{-50, -90, 1, 2, 3, 4}; });
  const std::vector<int32_t> start(3, 0);
  const Decodes ended = beam_search({1, 3, start}, model, kEos, {.num_decodes = 2});
  EXPECT_EQ(to_vector(ended.sequence(0, 1)), (std::vector<int32_t>{5, 1, 0}));
  EXPECT_EQ(to_vector(ended.sequence(0, 0)), (std::vector<int32_t>{0, 0, 0}));
  EXPECT_EQ(ended.scores[0], kNegInf);
  const Decodes live = beam_search({1, 3, start}, endless, kEos, {.num_decodes = 2});
  EXPECT_EQ(to_vector(live.best(0)), (std::vector<int32_t>{5, 5, 5}));
  EXPECT_NEAR(live.best_score(0), 3 * log_softmax({-50, -90, 1, 2, 3, 4}, 5), 1e-4);
}

TEST(BeamSearch, EqualSequencesRankByBeamAndToken) {
  // As jax.lax.top_k, which T5X ranks by: of equal values the one that stands first. Beams stand by
  // increasing score, so that of the first step's equals 3 and 2, in this order, 3 goes on first.
  TableModel model(6, [](const auto&) { return std::vector<float>{-50, -90, 3, 3, 3, 1}; });
  const std::vector<int32_t> start(2, 0);
  const BeamOptions options{.num_decodes = 2, .max_decode_len = 1};
  const Decodes first = beam_search({1, 2, start}, model, kEos, options);
  EXPECT_EQ(first.best(0)[0], 2);
  EXPECT_EQ(first.sequence(0, 0)[0], 3);
  const Decodes second = beam_search({1, 2, start}, model, kEos, {.num_decodes = 2});
  EXPECT_EQ(to_vector(second.best(0)), (std::vector<int32_t>{3, 2}));
  EXPECT_EQ(to_vector(second.sequence(0, 0)), (std::vector<int32_t>{3, 3}));
}

TEST(BeamSearch, PromptsAreForcedInEveryBeam) {
  TableModel model(8, [](const auto& h) { return hashed_logits(h, 8, 9); });
  const std::vector<int32_t> prompts{0, 4, 6, 0, 0, 0, 0, 7, 0, 0, 0, 0};
  const Decodes out = beam_search({2, 6, prompts}, model, kEos, {.num_decodes = 3});
  for (int64_t d = 0; d < 3; ++d) {
    const auto first = out.sequence(0, d), second = out.sequence(1, d);
    EXPECT_TRUE(out.scores[static_cast<size_t>(d)] < kNegInf / 2 ||
                (first[0] == 4 && first[1] == 6));
    EXPECT_TRUE(out.scores[static_cast<size_t>(3 + d)] < kNegInf / 2 || second[0] == 7);
  }
  EXPECT_GT(out.best_score(0), kNegInf / 2);
  EXPECT_GT(out.best_score(1), kNegInf / 2);
}

TEST(BeamSearch, ResultsOfABatchAreThoseOfItsItems) {
  TableModel model(12, [](const auto& h) { return hashed_logits(h, 12, 21); });
  const std::vector<int32_t> prompts{0, 2, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 9, 3, 0, 0, 0, 0};
  const Decodes all = beam_search({3, 7, prompts}, model, kEos, {.num_decodes = 3});
  for (int64_t i = 0; i < 3; ++i) {
    TableModel one(12, [](const auto& h) { return hashed_logits(h, 12, 21); });
    const Decodes alone =
        beam_search({1, 7, std::span(prompts).subspan(static_cast<size_t>(7 * i), 7)}, one, kEos,
                    {.num_decodes = 3});
    for (int64_t d = 0; d < 3; ++d)
      EXPECT_EQ(to_vector(all.sequence(i, d)), to_vector(alone.sequence(0, d)));
  }
}

TEST(BeamSearch, MistakesAreNamed) {
  TableModel model(6, [](const auto&) { return std::vector<float>(6, 0); });
  const std::vector<int32_t> start(4, 0);
  TableModel broken(6, [](const auto&) { return std::vector<float>(6, std::nanf("")); });
  EXPECT_THROW(beam_search({1, 4, start}, broken, kEos, {}), Error);
  EXPECT_THROW(beam_search({1, 4, start}, model, kEos, {.num_decodes = 0}), Error);
  EXPECT_THROW(beam_search({1, 4, start}, model, kEos, {.max_decode_len = 5}), Error);
  EXPECT_THROW(
      beam_search({1, 4, start}, model, kEos, {.initial_index = std::vector<int32_t>{1, 2}}),
      Error);
}

}  // namespace
}  // namespace quintet::decoding
