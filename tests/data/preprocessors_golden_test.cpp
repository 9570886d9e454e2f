// fixtures/seqio/text_preprocessors.jsonl and token_preprocessors.jsonl: every row whose function
// is a configurable here, with its arguments bound through gin.
#include <nlohmann/json.hpp>
#include <set>

#include "data/configurables/configurables.h"
#include "data/converters/feature_converter.h"
#include "data/tasks/gin_types.h"
#include "tests/data/gin_values.h"
#include "tests/data/rows.h"
#include "tests/harness/fixtures.h"

namespace quintet::data {
namespace {

using ::quintet::testing::fixture_root;
using testing::collect_json;
using testing::features_of;
using testing::gin_value;
using testing::lengths_of;
using testing::rows;

/// TensorFlow's booleans are whole numbers here.
nlohmann::json without_booleans(nlohmann::json json) {
  if (json.is_boolean()) return json.get<bool>() ? 1 : 0;
  if (json.is_structured())
    for (auto& item : json) item = without_booleans(item);
  return json;
}

/// Arguments that describe the task, not the preprocessor.
const std::set<std::string> kTaskArguments = {"sequence_length", "add_eos", "vocabulary", "seed",
                                              "length"};

class PreprocessorsGolden : public ::testing::Test {
 protected:
  PreprocessorsGolden() { register_data(registry_); }

  /// The configurable's full name: t5's unless the fixture says seqio's; empty if there is none.
  std::string full_name(const std::string& fn) const {
    if (fn.starts_with("seqio.")) return known("seqio.preprocessors." + fn.substr(6));
    const std::string t5 = known("t5.data.preprocessors." + fn);
    return t5.empty() ? known("seqio.preprocessors." + fn) : t5;
  }
  std::string known(const std::string& name) const {
    return registry_.find(name) != nullptr ? name : "";
  }

  StreamPtr run(const std::string& name, const Json& row) {
    gin::Config config(registry_, {});
    gin::Callable::Named named;
    PreprocessContext context;
    const Json args = row["args"];
    for (const auto& [key, value] : args.members())
      if (!kTaskArguments.count(key)) named.emplace_back(key, gin_value(value.raw()));
    VocabularyPtr vocabulary = std::make_shared<PassThroughVocabulary>(200, 1);
    if (args.has("vocabulary")) {
      EXPECT_EQ(args["vocabulary"].as_string(), "byte");
      vocabulary = std::make_shared<ByteVocabulary>();
    }
    const Json all = Json::parse(R"({"inputs": true, "targets": true})");
    context.output_features = features_of(
        args.has("add_eos") && args["add_eos"].is_object() ? args["add_eos"] : all, vocabulary);
    if (args.has("sequence_length")) context.sequence_length = lengths_of(args["sequence_length"]);
    if (args.has("length")) context.sequence_length = Lengths{{"targets", args["length"].as_int()}};
    const auto made = gin::as<PreprocessorPtr>(config.call(name, named), gin::Where{name});
    return made->apply(rows(row["inputs"]), context);
  }

  /// Compares every row of a file that is not random. Every function of the file must be here.
  void compare(const std::string& file_name, const std::set<std::string>& needed) {
    const auto file = fixture_root() / "seqio" / file_name;
    if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
    std::map<std::string, int> compared;
    for (const Json& row : Json::read_lines(file)) {
      const std::string fn = row["fn"].as_string(), name = full_name(fn);
      SCOPED_TRACE(row.path() + " " + name + " " + row["args"].raw().dump());
      if (name.empty()) {
        ADD_FAILURE() << "no preprocessor here is called " << fn;
        continue;
      }
      if (row.has("random") && row["random"].as_bool()) continue;  // invariants are tested below
      ++compared[fn];
      StreamPtr stream = run(name, row);
      EXPECT_EQ(collect_json(*stream), without_booleans(row["outputs"].raw()));
    }
    for (const std::string& fn : needed) EXPECT_GT(compared[fn], 0) << fn;
  }

  gin::Registry registry_;
};

TEST_F(PreprocessorsGolden, Text) {
  compare("text_preprocessors.jsonl", {"parse_tsv", "preprocess_tsv", "rekey", "seqio.tokenize",
                                       "seqio.tokenize_and_append_eos"});
}

TEST_F(PreprocessorsGolden, MoreText) {
  compare("more/text_preprocessors.jsonl", {"trivia_qa", "squad", "neighboring_pairs"});
}

TEST_F(PreprocessorsGolden, Tokens) {
  compare("token_preprocessors.jsonl",
          {"split_tokens", "split_tokens_to_inputs_length", "split_tokens_to_targets_length",
           "concatenate_and_split_to_fixed_length", "reduce_concat_tokens", "trim_tokens_at_front",
           "truncate_inputs_left", "full_lm"});
}

/// Segment n of encoder and decoder together is text n; positions count from the segment's start.
void expect_packed_pair(const Example& row, const Tokens* texts) {
  Tokens joined[2], last(2, -1);
  for (const std::string side : {"encoder", "decoder"}) {
    const Tokens& ids =
        row.tokens(side == "encoder" ? "encoder_input_tokens" : "decoder_target_tokens");
    const Tokens &segments = row.tokens(side + "_segment_ids"),
                 &positions = row.tokens(side + "_positions");
    ASSERT_EQ(ids.size(), texts[0].size());
    for (size_t i = 0; i < ids.size(); ++i) {
      joined[segments[i] - 1].push_back(ids[i]);
      EXPECT_EQ(positions[i], i > 0 && segments[i] == segments[i - 1] ? positions[i - 1] + 1 : 0);
    }
  }
  EXPECT_EQ(joined[0], texts[0]);
  EXPECT_EQ(joined[1], texts[1]);
  const Tokens& targets = row.tokens("decoder_target_tokens");
  EXPECT_EQ(row.tokens("decoder_input_tokens"),
            make_autoregressive_inputs(targets, row.tokens("decoder_segment_ids"), 0));
  EXPECT_EQ(row.tokens("decoder_loss_weights"), Tokens(targets.size(), 1));
}

/// The loss is on what comes after the prefix; all of the prefix and one token more is seen.
void expect_prefix_seen(const Example& row, const Tokens& text) {
  const Tokens &weights = row.tokens("decoder_loss_weights"),
               &seen = row.tokens("decoder_causal_attention");
  EXPECT_EQ(row.tokens("decoder_target_tokens"), text);
  EXPECT_EQ(row.tokens("decoder_input_tokens"), make_autoregressive_inputs(text, {}, 0));
  const auto split = std::find(weights.begin(), weights.end(), 1) - weights.begin();
  EXPECT_GE(split, 1);
  EXPECT_LT(split, static_cast<int64_t>(text.size()));
  for (int64_t i = 0; i < static_cast<int64_t>(text.size()); ++i) {
    EXPECT_EQ(weights[static_cast<size_t>(i)], i >= split);
    EXPECT_EQ(seen[static_cast<size_t>(i)], i <= split);
  }
}

/// "random" rows: other draws than TensorFlow's, so what must hold of any draw.
TEST_F(PreprocessorsGolden, RandomChunksKeepTheirInvariants) {
  const auto file = fixture_root() / "seqio" / "token_preprocessors.jsonl";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  int chunks = 0, prefixes = 0, packed = 0;
  for (const Json& row : Json::read_lines(file)) {
    const std::string fn = row["fn"].as_string();
    if (!row.has("random") || full_name(fn).empty()) continue;
    SCOPED_TRACE(row.path() + " " + fn);
    StreamPtr stream = run(full_name(fn), row);
    const std::vector<Example> got = collect(*stream);
    std::vector<Tokens> texts;
    for (const Json& text : row["inputs"].items()) {
      texts.push_back(text["targets"].raw().get<Tokens>());
      if (texts.back().empty()) texts.pop_back();
    }
    if (fn == "select_random_chunk") {
      const int64_t longest = row["args"]["max_length"].as_int();
      const bool anywhere = row["args"].has("uniform_random_start");
      ASSERT_EQ(got.size(), texts.size());
      for (size_t i = 0; i < got.size(); ++i, ++chunks) {
        const Tokens& chunk = got[i].tokens("targets");
        EXPECT_LE(static_cast<int64_t>(chunk.size()), longest);
        EXPECT_FALSE(chunk.empty());
        bool found = false;
        const int64_t last = static_cast<int64_t>(texts[i].size() - chunk.size());
        for (int64_t at = 0; at <= last; at += anywhere ? 1 : longest)
          found = found || std::equal(chunk.begin(), chunk.end(), texts[i].begin() + at);
        EXPECT_TRUE(found) << "not a chunk of text " << i;
      }
    } else if (fn == "pack_prefix_lm_encoder_decoder") {
      ASSERT_EQ(got.size(), texts.size() / 2);
      for (size_t i = 0; i < got.size(); ++i, ++packed) expect_packed_pair(got[i], &texts[2 * i]);
    } else if (fn == "pack_prefix_lm_decoder_only") {
      ASSERT_EQ(got.size(), texts.size());
      for (size_t i = 0; i < got.size(); ++i, ++packed) expect_prefix_seen(got[i], texts[i]);
    } else {
      ASSERT_EQ(fn, "prefix_lm") << "no invariants are known";
      Tokens joined, want;
      for (const Example& example : got) {
        for (const char* key : {"inputs", "targets"})
          joined.insert(joined.end(), example.tokens(key).begin(), example.tokens(key).end());
        // A prefix and a rest, both there unless the segment is a single token.
        const size_t size = example.tokens("inputs").size() + example.tokens("targets").size();
        EXPECT_FALSE(example.tokens("targets").empty());
        EXPECT_TRUE(size == 1 || !example.tokens("inputs").empty());
        ++prefixes;
      }
      for (const Tokens& text : texts) want.insert(want.end(), text.begin(), text.end());
      EXPECT_EQ(joined, want);
    }
  }
  EXPECT_GT(chunks + prefixes + packed, 0);
}

}  // namespace
}  // namespace quintet::data
