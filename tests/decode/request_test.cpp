// Requests: rules, choices and stop strings, each on rows small enough to read.

#include "models/decoding/request.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "data/vocabularies/text_stream.h"

namespace quintet::testing {
namespace {

using namespace decoding;
constexpr float kNever = -std::numeric_limits<float>::infinity();
using Row = std::vector<float>;

Row after(const LogitRules& rules, Row row, const TokenList& tokens, const TokenList& inputs = {}) {
  rules.apply(row, {.tokens = tokens, .prompt_length = 1, .inputs = inputs});
  return row;
}

TEST(LogitRules, PenaltyActsOnceATokenWhateverItsSign) {
  EXPECT_EQ(after({.repetition_penalty = 2}, {1, -1, 3, 4}, {0, 1, 1, 2}), (Row{.5, -2, 1.5, 4}));
  EXPECT_EQ(after({.encoder_repetition_penalty = 2}, {1, -1, 3, 4}, {0}, {1, 3, 3}),
            (Row{1, -.5, 3, 8}));
}

TEST(LogitRules, NgramsOfHistoryAndInputsAreNotRepeated) {
  EXPECT_EQ(after({.no_repeat_ngram_size = 2}, {1, 2, 3, 4}, {0, 2, 3, 0}), (Row{1, 2, kNever, 4}));
  EXPECT_EQ(after({.no_repeat_ngram_size = 3}, {1, 2, 3, 4}, {0}), (Row{1, 2, 3, 4}));
  EXPECT_EQ(after({.encoder_no_repeat_ngram_size = 2}, {1, 2, 3, 4}, {0, 2}, {2, 1, 2, 3}),
            (Row{1, kNever, 3, kNever}));
}

TEST(LogitRules, EndComesNeitherTooEarlyNorTooLate) {
  EXPECT_EQ(after({.min_new_tokens = 2}, {1, 2, 3}, {0, 2}), (Row{1, kNever, 3}));
  EXPECT_EQ(after({.min_new_tokens = 2}, {1, 2, 3}, {0, 2, 2}), (Row{1, 2, 3}));
  const LogitRules last{.max_new_tokens = 3, .forced_eos = true};
  EXPECT_EQ(after(last, {1, 2, 3}, {0, 2}), (Row{1, 2, 3}));
  EXPECT_EQ(after(last, {1, 2, 3}, {0, 2, 2}), (Row{kNever, 0, kNever}));
  EXPECT_EQ(after({.decay_length_penalty = {1, 2}}, {1, -2, 3}, {0, 2, 2, 2}), (Row{1, 4, 3}));
}

TEST(LogitRules, WordsAreForcedForbiddenAndBiased) {
  EXPECT_EQ(after({.prefix = {2, 1}}, {1, 2, 3}, {0, 2}), (Row{kNever, 0, kNever}));
  EXPECT_EQ(after({.bad_words = {{0}, {2, 2}, {1}}}, {1, 2, 3}, {0, 2}), (Row{kNever, 2, kNever}));
  EXPECT_EQ(after({.bad_words = {{2, 2}}}, {1, 2, 3}, {0, 1}), (Row{1, 2, 3}));
  EXPECT_EQ(after({.sequence_bias = {{{0}, 5}, {{1, 2}, -1}}}, {1, 2, 3}, {0, 1}), (Row{6, 2, 2}));
  EXPECT_EQ(after({.suppress = {0}, .begin_suppress = {1}}, {1, 2, 3}, {0}),
            (Row{kNever, kNever, 3}));
  EXPECT_EQ(after({.begin_suppress = {1}}, {1, 2, 3}, {0, 1}), (Row{1, 2, 3}));
}

TEST(LogitRules, WrongValuesAreNamed) {
  EXPECT_THROW(LogitRules{.repetition_penalty = 0}.check(8), Error);
  EXPECT_THROW((LogitRules{.prefix = {8}}.check(8)), Error);
  EXPECT_THROW((SamplingParameters{.top_p = 0}.check()), Error);
  EXPECT_THROW((DecodingRequest{.num_return_sequences = 5, .num_beams = 4}.check(8)), Error);
}

TEST(TokenChoice, DependsOnSeedDecodeAndPositionAlone) {
  const Row logits{1, 2, 3, 2, 1, 0, 2, 3};
  const auto draws = [&](uint64_t seed, int64_t decode) {
    TokenList tokens;
    for (int64_t i = 0; i < 64; ++i) {
      Row row = logits;
      tokens.push_back(choose_token(row, {.temperature = 2, .seed = seed}, decode, i).token);
    }
    return tokens;
  };
  EXPECT_EQ(draws(1, 0), draws(1, 0));
  EXPECT_NE(draws(1, 0), draws(2, 0));
  EXPECT_NE(draws(1, 0), draws(uint64_t{1} << 32 | 1, 0));
  EXPECT_NE(draws(1, 0), draws(1, 1));
}

TEST(TokenChoice, FiltersKeepTheLikeliestAndRescale) {
  Row counts(4, 0);
  const auto n = 4000;
  for (int64_t i = 0; i < n; ++i) {
    Row row{std::log(.4f), std::log(.3f), std::log(.2f), std::log(.1f)};
    const TokenChoice c = choose_token(row, {.temperature = 1, .top_p = .6f, .seed = 3}, 0, i);
    counts[static_cast<size_t>(c.token)] += 1;
    EXPECT_NEAR(std::exp(c.log_prob), c.token == 0 ? 4. / 7 : 3. / 7, 1e-5);
    EXPECT_NEAR(std::exp(c.model_log_prob), c.token == 0 ? .4 : .3, 1e-5);
  }
  EXPECT_NEAR(counts[0] / n, 4. / 7, .04);
  EXPECT_EQ(counts[2] + counts[3], 0);
  Row row{1, 3, 3, 2};
  const TokenChoice one =
      choose_token(row, {.temperature = 1, .top_k = 1, .alternatives = 3}, 0, 0);
  EXPECT_TRUE(one.token == 1 || one.token == 2);
  ASSERT_EQ(one.top.size(), 3u);
  EXPECT_EQ(one.top[0].token, 1);
  EXPECT_EQ(one.top[2].token, 3);
}

/// Counts upwards: the token after t is t + 1, the next best t + 2.
class Counting : public TokenModel {
 public:
  int64_t vocab_size() const override { return 16; }
  std::span<float> step(const StepInput& input) override {
    logits_.assign(input.rows.size() * 16, 0);
    for (size_t r = 0; r < input.rows.size(); ++r) {
      logits_[r * 16 + static_cast<size_t>(input.tokens[r] + 1) % 16] = 4;
      logits_[r * 16 + static_cast<size_t>(input.tokens[r] + 2) % 16] = 3;
    }
    rows += input.rows.size();
    return logits_;
  }
  size_t rows = 0;

 private:
  Row logits_;
};

TEST(RequestDecoder, RequestsOfABatchEndEachByItself) {
  const auto rules = [](int64_t most) {
    return LogitRules{.eos_ids = {15}, .max_new_tokens = most};
  };
  const std::vector<DecodingRequest> requests{
      {.prompt = {0}, .rules = rules(3)},
      {.prompt = {0, 11, 12}, .rules = rules(9)},
      {.prompt = {7}, .rules = rules(9), .stops = [](int32_t token) { return token == 9; }}};
  Counting model;
  const auto results = generate(model, requests, 1);
  EXPECT_EQ(results[0][0].ids(), (TokenList{1, 2, 3}));
  EXPECT_EQ(results[0][0].finish, FinishReason::length);
  EXPECT_EQ(results[1][0].ids(), (TokenList{13, 14, 15}));
  EXPECT_EQ(results[1][0].finish, FinishReason::eos);
  EXPECT_EQ(results[2][0].ids(), (TokenList{8, 9}));
  EXPECT_EQ(results[2][0].finish, FinishReason::stop);
  EXPECT_EQ(model.rows, 3u + 5 + 2);
}

TEST(RequestDecoder, AnswersDoNotDependOnTheBatch) {
  std::vector<DecodingRequest> requests;
  for (uint64_t seed = 0; seed < 5; ++seed)
    requests.push_back({.rules = {.eos_ids = {15}, .max_new_tokens = 8},
                        .sampling = {.temperature = 2, .seed = seed},
                        .num_return_sequences = 3});
  Counting model;
  const auto together = generate(model, requests, 3);
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto alone = generate(model, {&requests[i], 1}, 3);
    for (size_t d = 0; d < 3; ++d) EXPECT_EQ(together[i][d].ids(), alone[0][d].ids());
  }
  EXPECT_NE(together[0][0].ids(), together[0][1].ids());
  EXPECT_NE(together[0][0].ids(), together[1][0].ids());
}

TEST(RequestDecoder, BeamsThatMayNotGoOnEndWhereTheyAre) {
  LogitRules rules{.eos_ids = {15}, .max_new_tokens = 4, .min_new_tokens = 4};
  for (int32_t token = 0; token < 15; ++token) rules.suppress.push_back(token);
  const DecodingRequest request{.rules = rules, .num_return_sequences = 2, .num_beams = 2};
  Counting model;
  const auto results = generate(model, {&request, 1}, 2);
  ASSERT_EQ(results[0].size(), 1u);
  EXPECT_TRUE(results[0][0].tokens.empty());
}

std::string shown(std::vector<std::string> stops, std::string_view text, bool& stopped) {
  const auto vocabulary = std::make_shared<data::ByteVocabulary>();
  data::TextStream stream(vocabulary, std::move(stops));
  std::string all;
  for (int32_t id : vocabulary->encode(text)) {
    all += stream.push(id);
    EXPECT_TRUE(text.starts_with(all)) << all;
  }
  all += stream.finish();
  stopped = stream.stopped();
  EXPECT_EQ(all, stream.text());
  return all;
}

TEST(TextStream, StopStringsAreFoundAcrossTokens) {
  bool stopped = false;
  EXPECT_EQ(shown({"END", "##"}, "one # EN two END three", stopped), "one # EN two ");
  EXPECT_TRUE(stopped);
  EXPECT_EQ(shown({"END"}, "häé EN", stopped), "häé EN");
  EXPECT_FALSE(stopped);
  EXPECT_EQ(shown({"aab"}, "aaab", stopped), "a");
  EXPECT_TRUE(stopped);
}

/// Characters as ids; counts how often one is made text.
class CountingVocabulary final : public data::Vocabulary {
 public:
  data::Tokens encode(std::string_view text) const override { return {text.begin(), text.end()}; }
  int32_t base_vocab_size() const override { return 128; }
  std::optional<int32_t> eos_id() const override { return std::nullopt; }
  std::optional<int32_t> unk_id() const override { return std::nullopt; }
  std::string description() const override { return "CountingVocabulary()"; }
  mutable int64_t appended = 0;

 protected:
  void append(int32_t id, data::DecodeState&, std::string& text) const override {
    text += static_cast<char>(id);
    ++appended;
  }
};

TEST(TextStream, StopsAreWhereASearchOfTheWholeTextFindsThem) {
  std::mt19937 random(3);
  const auto word = [&](size_t longest) {
    std::string text(1 + random() % longest, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  const auto vocabulary = std::make_shared<CountingVocabulary>();
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> stops;
    while (stops.size() < 1 + random() % 4) stops.push_back(word(7));
    const std::string text = word(40);
    data::TextStream stream(vocabulary, stops);
    size_t end = 0;
    while (end < text.size() && !stream.stopped()) stream.push(text[end++]);
    stream.finish();
    size_t first = std::string::npos;
    for (const std::string& stop : stops) first = std::min(first, text.substr(0, end).find(stop));
    ASSERT_EQ(stream.stopped(), first != std::string::npos) << text;
    ASSERT_EQ(stream.text(), text.substr(0, std::min(first, end))) << text;
    if (!stream.stopped()) continue;
    for (const std::string& stop : stops)
      ASSERT_EQ(text.substr(0, end - 1).find(stop), std::string::npos);
  }
}

TEST(TextStream, ATokenIsDecodedOnce) {
  const auto vocabulary = std::make_shared<CountingVocabulary>();
  data::TextStream stream(vocabulary, {"END"});
  const auto stops = data::stop_check(vocabulary, {"END"});
  for (int i = 0; i < 100; ++i) {
    stream.push('E');
    EXPECT_FALSE(stops('N'));
  }
  EXPECT_EQ(vocabulary->appended, 200);
}

TEST(TextStream, ACopyGoesOnByItself) {
  const auto vocabulary = std::make_shared<CountingVocabulary>();
  const auto first = data::stop_check(vocabulary, {"ab"});
  EXPECT_FALSE(first('a'));
  const auto second = first;
  EXPECT_FALSE(first('a'));
  EXPECT_TRUE(second('b'));
  EXPECT_TRUE(first('b'));
}

TEST(RequestDecoder, StopsOfBeamsAreEachBeamsOwn) {
  // The best beam is 1 2 3 ..., the next 2 3 4 ... or 1 3 4 ...; each has its own tokens to stop
  // at.
  const auto seen = [last = int32_t{0}](int32_t token) mutable {
    const bool jumped = token == 5 && last == 3;
    last = token;
    return jumped;
  };
  const DecodingRequest request{.rules = {.eos_ids = {15}, .max_new_tokens = 6},
                                .num_return_sequences = 4,
                                .num_beams = 4,
                                .stops = seen};
  Counting model;
  const auto results = generate(model, {&request, 1}, 4);
  for (const Hypothesis& one : results[0]) {
    const TokenList ids = one.ids();
    bool jumps = false;
    for (size_t i = 1; i < ids.size(); ++i) {
      jumps = ids[i] == 5 && ids[i - 1] == 3;
      EXPECT_EQ(jumps, one.finish == FinishReason::stop && i + 1 == ids.size());
    }
  }
}

TEST(TextStream, NothingIsShownThatCouldBeginAStop) {
  const auto vocabulary = std::make_shared<data::ByteVocabulary>();
  data::TextStream stream(vocabulary, {"END"});
  std::vector<std::string> parts;
  for (int32_t id : vocabulary->encode("xEé")) parts.push_back(stream.push(id));
  EXPECT_EQ(parts, (std::vector<std::string>{"x", "", "", "Eé"}));
}

}  // namespace
}  // namespace quintet::testing
