// T5's preprocessors that draw, and those whose arguments come through gin: what must hold of any
// draw. Fixed results are in preprocessors_golden_test.cpp.
#include <algorithm>
#include <set>

#include "data/configurables/configurables.h"
#include "data/preprocessors/language_preprocessors.h"
#include "data/preprocessors/qa_preprocessors.h"
#include "data/preprocessors/rank_classification.h"
#include "data/preprocessors/sentence_preprocessors.h"
#include "data/preprocessors/strings.h"
#include "data/tasks/gin_types.h"
#include "tests/data/files.h"
#include "tests/data/rows.h"

namespace quintet::data {
namespace {

using testing::contains;
using testing::message_of;
using testing::rows;
using testing::rows_text;

/// "w0 w1 w2 .."
std::string words(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += (i > 0 ? " w" : "w") + std::to_string(i);
  return text;
}

StreamPtr texts(int examples, const std::string& text) {
  std::vector<Example> all(static_cast<size_t>(examples));
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].set("text", text);
    all[i].index = static_cast<int64_t>(i);
    all[i].key = split_at(key_from_seed(3), i);
  }
  return stream_of(std::move(all));
}

TEST(Sentences, RandomSplitTextCutsAChunkIntoEqualPieces) {
  RandomSplitText split;
  split.min_words_per_segment = 3;
  split.max_words_per_segment = 9;
  split.max_words_total = 40;
  StreamPtr stream = split.apply(texts(60, words(100)), {});
  std::map<int64_t, std::vector<std::vector<std::string>>> pieces;
  for (const Example& example : collect(*stream))
    pieces[example.index].push_back(split_words(example.text("text")));
  std::set<size_t> lengths;
  std::set<std::string> starts;
  ASSERT_EQ(pieces.size(), 60u);
  for (const auto& [index, all] : pieces) {
    std::vector<std::string> joined;
    for (const auto& piece : all) {
      EXPECT_TRUE(piece.size() == all.front().size() || &piece == &all.back());
      joined.insert(joined.end(), piece.begin(), piece.end());
    }
    lengths.insert(all.front().size());
    starts.insert(joined.front());
    EXPECT_TRUE(contains(words(100) + " ", join(joined, " ") + " "));
  }
  EXPECT_EQ(*lengths.begin(), 3u);
  EXPECT_LE(*lengths.rbegin(), 9u);
  EXPECT_EQ(starts, (std::set<std::string>{"w0", "w40", "w80"}));
}

TEST(Sentences, FillInTheBlankSplitsAndJoinsAgain) {
  StreamPtr stream = FillInTheBlank{}.apply(texts(40, words(12)), {});
  const auto got = collect(*stream);
  ASSERT_EQ(got.size(), 80u);
  for (size_t i = 0; i < got.size(); i += 2) {
    const std::string inputs = got[i].text("inputs"), targets = got[i].text("targets");
    ASSERT_TRUE(inputs.starts_with("fill: "));
    EXPECT_EQ(got[i + 1].text("inputs"), "fill: " + targets);
    EXPECT_EQ("fill: " + got[i + 1].text("targets"), inputs);
    // Pieces of the one text fill the X of the other, in turn.
    const auto a = split_words(inputs.substr(6)), b = split_words(targets);
    std::vector<std::string> all;
    for (const auto& list : {a, b})
      for (const std::string& word : list)
        if (word != "X") all.push_back(word);
    std::sort(all.begin(), all.end());
    auto want = split_words(words(12));
    std::sort(want.begin(), want.end());
    EXPECT_EQ(all, want);
    EXPECT_GT(std::count(a.begin(), a.end(), "X"), 0);
    EXPECT_GT(std::count(b.begin(), b.end(), "X"), 0);
  }
}

TEST(Sentences, FillInTheBlankSizedSaysTheNearestSize) {
  FillInTheBlankSized fill;
  fill.size_bins = {4, 1, 2};
  StreamPtr stream = fill.apply(texts(60, words(9)), {});
  std::set<size_t> sizes;
  for (const Example& example : collect(*stream)) {
    const std::string inputs = example.text("inputs"), targets = example.text("targets");
    const size_t size = split_words(targets).size();
    sizes.insert(size);
    const std::string bin = size == 1 ? "_1_" : size == 2 || size == 3 ? "_2_" : "_4_";
    std::string filled = inputs;
    const size_t at = filled.find(bin);
    ASSERT_NE(at, std::string::npos) << inputs << " / " << targets;
    filled.replace(at, bin.size(), targets);
    EXPECT_EQ(filled, "fill: " + words(9));
  }
  EXPECT_EQ(sizes, (std::set<size_t>{1, 2, 3}));  // drawn below the largest bin, as in T5
}

TEST(Sentences, NextSentencePredictionSwapsHalfOfThePairs) {
  std::string text;
  for (int i = 0; i < 401; ++i) text += "s" + std::to_string(i) + ". ";
  NextSentencePrediction next;
  next.label_sentences = true;
  StreamPtr stream = next.apply(texts(1, text), {});
  const auto got = collect(*stream);
  ASSERT_EQ(got.size(), 400u);
  int neighbours = 0;
  for (const Example& example : got) {
    int first = 0, second = 0;
    ASSERT_EQ(std::sscanf(example.text("inputs").c_str(), "nsp: sentence1: s%d. sentence2: s%d.",
                          &first, &second),
              2);
    const bool is_next = example.text("targets") == "next";
    EXPECT_EQ(is_next, second == first + 1);
    neighbours += is_next;
  }
  EXPECT_NEAR(neighbours, 200, 60);  // pairs of examples: 200 draws, 4 standard errors are 57
}

TEST(TriviaQaTruncate, KeepsTheAnswerInSight) {
  const auto vocabulary = std::make_shared<PassThroughVocabulary>(200, 1);
  const PreprocessContext context{{{"inputs", {vocabulary}}, {"targets", {vocabulary}}},
                                  Lengths{{"inputs", 6}, {"targets", 4}}};
  Example example;
  Tokens inputs(20, 9);
  inputs[12] = 50;
  inputs[13] = 51;
  example.set("inputs", inputs);
  example.set("targets", Tokens{50, 51});
  std::vector<Example> many(100, example);
  for (size_t i = 0; i < many.size(); ++i) many[i].key = split_at(key_from_seed(1), i);
  many.back().set("targets", Tokens{77});
  StreamPtr stream = TriviaQaTruncateInputs{}.apply(stream_of(many), context);
  const auto got = collect(*stream);
  EXPECT_EQ(got.size(), 99u);  // without the one whose answer is not there
  std::set<int64_t> places;
  for (const Example& out : got) {
    const Tokens& cut = out.tokens("inputs");
    ASSERT_EQ(cut.size(), 6u);
    const auto at = std::find(cut.begin(), cut.end(), 50);
    ASSERT_LT(at, cut.end() - 1);
    EXPECT_EQ(*(at + 1), 51);
    places.insert(at - cut.begin());
  }
  EXPECT_EQ(places, (std::set<int64_t>{0, 1, 2, 3, 4}));
}

class ThroughGin : public ::testing::Test {
 protected:
  ThroughGin() { register_data(names_); }
  const gin::Config& config(const std::string& text) {
    config_ = std::make_unique<gin::Config>(names_, gin::Config::Options());
    config_->parse_text(text, "test.gin");
    config_->finalize();
    return *config_;
  }
  Tokens noise(const std::string& function, const std::string& text = "") {
    const auto fn = gin::as<NoiseFnPtr>(
        config("import t5.data.preprocessors\n" + text).call("t5.data.preprocessors." + function),
        {function});
    Random random(key_from_seed(5));
    return (*fn)(tokens_, mask_, PassThroughVocabulary(200, 1), random);
  }
  Tokens tokens_ = {10, 11, 12, 13, 14, 15, 16, 17};
  NoiseMask mask_ = {0, 1, 1, 0, 1, 0, 1, 1};
  gin::Registry names_;
  std::unique_ptr<gin::Config> config_;
};

TEST_F(ThroughGin, NoiseFunctionsThatDrawChangeOnlyNoise) {
  for (const char* name :
       {"permute_noise_tokens", "noise_token_to_gathered_token", "noise_token_to_random_token",
        "noise_token_to_random_token_or_sentinel"}) {
    SCOPED_TRACE(name);
    const Tokens out = noise(name);
    ASSERT_EQ(out.size(), tokens_.size());
    for (size_t i = 0; i < out.size(); ++i)
      if (!mask_[i]) {
        EXPECT_EQ(out[i], tokens_[i]);
      }
    EXPECT_NE(out, tokens_);
  }
  Tokens permuted = noise("permute_noise_tokens");
  std::sort(permuted.begin(), permuted.end());
  EXPECT_EQ(permuted, tokens_);
  for (int32_t id : noise("noise_token_to_gathered_token"))
    EXPECT_TRUE(std::count(tokens_.begin(), tokens_.end(), id)) << id;
  const Tokens high = noise("noise_token_to_random_token",
                            "preprocessors.noise_token_to_random_token.num_reserved_tokens = 198");
  for (size_t i = 0; i < high.size(); ++i)
    if (mask_[i]) {
      EXPECT_GE(high[i], 198);
    }
}

TEST_F(ThroughGin, SentinelsAndRandomTokensTakeTheirBindings) {
  const std::string sentinel = "preprocessors.sentinel_id.return_value = 77\n";
  EXPECT_EQ(noise("noise_span_to_unique_sentinel", sentinel), (Tokens{10, 77, 13, 76, 15, 75}));
  EXPECT_EQ(
      noise("noise_token_to_random_token_or_sentinel",
            sentinel + "preprocessors.noise_token_to_random_token_or_sentinel.random_prob = 0.0"),
      (Tokens{10, 77, 77, 13, 77, 15, 77, 77}));
}

/// The operative configuration that T5's published models carry.
TEST_F(ThroughGin, UnsupervisedRunsTheStepsThatGinLists) {
  const gin::Config& c = config(R"(
from t5.data import preprocessors
preprocessors.unsupervised.preprocessors = [
    @preprocessors.select_random_chunk, @preprocessors.reduce_concat_tokens,
    @preprocessors.split_tokens, @preprocessors.denoise]
preprocessors.denoise.inputs_fn = @preprocessors.noise_span_to_unique_sentinel
preprocessors.denoise.noise_density = 0.15
preprocessors.denoise.noise_mask_fn = @preprocessors.random_spans_noise_mask
preprocessors.denoise.targets_fn = @preprocessors.nonnoise_span_to_unique_sentinel
preprocessors.random_spans_helper.extra_tokens_per_span_inputs = 1
preprocessors.random_spans_helper.extra_tokens_per_span_targets = 1
preprocessors.random_spans_helper.inputs_length = 64
preprocessors.random_spans_helper.mean_noise_span_length = 3.0
preprocessors.random_spans_helper.noise_density = 0.15
preprocessors.select_random_chunk.feature_key = 'targets'
preprocessors.select_random_chunk.max_length = 65536
preprocessors.split_tokens.max_tokens_per_segment = @preprocessors.random_spans_tokens_length()
)");
  const auto step =
      gin::as<PreprocessorPtr>(c.call("preprocessors.unsupervised"), {"unsupervised"});
  const auto vocabulary = std::make_shared<PassThroughVocabulary>(200, 1);
  const PreprocessContext context{{{"inputs", {vocabulary}}, {"targets", {vocabulary}}},
                                  Lengths{{"inputs", 64}, {"targets", 64}}};
  Example text;
  text.set("targets", Tokens(1000, 42));
  StreamPtr stream = step->apply(stream_of({text}), context);
  const auto got = collect(*stream);
  ASSERT_GT(got.size(), 10u);
  for (size_t i = 0; i + 1 < got.size(); ++i) {
    EXPECT_EQ(got[i].tokens("inputs").size(), 63u);  // one place is left for EOS
    EXPECT_EQ(got[i].tokens("targets").front(), 199);
  }
  EXPECT_EQ(c.call_as<int64_t>("preprocessors.random_spans_targets_length"),
            random_spans_helper(64, 0.15, 3.0, 1, 1).targets_length);
}

TEST_F(ThroughGin, AFeatureConverterCanEndATask) {
  const gin::Config& c = config(R"(
import seqio
seqio.EncDecFeatureConverter.bos_id = 3
seqio.preprocessors.apply_feature_converter.feature_converter = @seqio.EncDecFeatureConverter()
)");
  const auto step = gin::as<PreprocessorPtr>(c.call("seqio.preprocessors.apply_feature_converter"),
                                             {"apply_feature_converter"});
  const PreprocessContext context{{}, Lengths{{"inputs", 2}, {"targets", 3}}};
  EXPECT_EQ(rows_text(*step->apply(rows(R"([{"inputs": [5], "targets": [6, 1]}])"), context)),
            R"([{"decoder_input_tokens":[3,6,1],"decoder_loss_weights":[1,1,0],)"
            R"("decoder_target_tokens":[6,1,0],"encoder_input_tokens":[5,0]}])");
}

TEST(RankClassification, FunctionsOfC) {
  RankClassification rank;
  rank.inputs_fn = [](const Example& e) { return std::vector<std::string>(2, e.text("premise")); };
  rank.targets_fn = [](const Example&) { return std::vector<std::string>{"no", "yes"}; };
  rank.is_correct_fn = [](const Example& e) {
    return std::vector<bool>{e.integer("label") == 0, e.integer("label") == 1};
  };
  rank.passthrough_feature_keys = {"id"};
  EXPECT_EQ(rows_text(*rank.apply(rows(R"([{"premise": "p", "label": 1, "id": "x"}])"), {})),
            R"([{"id":"x","idx":[0,0],"inputs":"p","is_correct":0,"targets":"no"},)"
            R"({"id":"x","idx":[0,1],"inputs":"p","is_correct":1,"targets":"yes"}])");
  rank.targets_fn = [](const Example&) { return std::vector<std::string>{"no"}; };
  EXPECT_TRUE(contains(message_of(ExitCode::kData,
                                  [&] {
                                    StreamPtr s = rank.apply(
                                        rows(R"([{"premise": "p", "label": 1, "id": "x"}])"), {});
                                    collect(*s);
                                  }),
                       "2 inputs, 1 targets"));
}

/// The example of t5's own docstring.
TEST_F(ThroughGin, RankClassificationTakesFunctionsOfFeatures) {
  const std::string bindings = R"(
from quintet import data
from t5.data import preprocessors
inputs/data.texts_of.key = 'prefix'
targets/data.texts_of.key = 'suffix'
data.one_hot_of.key = 'label'
data.one_hot_of.num_classes = 2
data.number_of.key = 'weight'
preprocessors.rank_classification:
  inputs_fn = @inputs/data.texts_of
  targets_fn = @targets/data.texts_of
  is_correct_fn = @data.one_hot_of
  weight_fn = @data.number_of
)";
  const auto ranked = [&](const std::string& more) {
    const auto step = gin::as<PreprocessorPtr>(
        config(bindings + more).call("t5.data.preprocessors.rank_classification"), {"step"});
    return rows_text(*step->apply(rows(R"([{"prefix": ["The farmland needed ",
        "The farmland wanted "], "suffix": ["water", "cows"], "label": 0, "weight": 1.5}])"),
                                  {}));
  };
  const std::string water = R"({"idx":[0,0],"inputs":"The farmland needed ","is_correct":1,)"
                            R"("targets":"water","weight":1.5})",
                    cows = R"({"idx":[0,1],"inputs":"The farmland wanted ","is_correct":0,)"
                           R"("targets":"cows","weight":1.5})";
  EXPECT_EQ(ranked(""), "[" + water + "," + cows + "]");
  EXPECT_EQ(ranked("preprocessors.rank_classification.mode = 'train'"), "[" + water + "]");
}

TEST(Translate, AnUnknownLanguageIsAnError) {
  EXPECT_EQ(language_name("de-AT"), "German");
  EXPECT_TRUE(contains(message_of(ExitCode::kUsage, [] { language_name("xx"); }), "'xx'"));
}

}  // namespace
}  // namespace quintet::data
