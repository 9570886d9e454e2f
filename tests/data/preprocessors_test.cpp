// Rows in and rows out of preprocessors, and what the streams behind them promise.
#include <nlohmann/json.hpp>

#include "data/preprocessors/denoise.h"
#include "data/preprocessors/text_preprocessors.h"
#include "data/preprocessors/token_preprocessors.h"
#include "tests/data/files.h"
#include "tests/data/rows.h"

namespace quintet::data {
namespace {

using testing::contains;
using testing::message_of;
using testing::rows;
using testing::rows_text;

PreprocessContext context_of(Lengths lengths) {
  const auto vocabulary = std::make_shared<PassThroughVocabulary>(200, 1);
  return {{{"inputs", {vocabulary}}, {"targets", {vocabulary}}}, std::move(lengths)};
}

TEST(Preprocessors, EosIsAppendedAfterTrimming) {
  const PreprocessContext context = context_of({{"inputs", 3}, {"targets", 5}});
  EXPECT_EQ(rows_text(*AppendEosAfterTrim{}.apply(
                rows(R"([{"inputs": [5, 6, 7, 8], "targets": [9], "other": [3]}])"), context)),
            R"([{"inputs":[5,6,1],"other":[3],"targets":[9,1]}])");
}

TEST(Preprocessors, AddPrefixPutsItBeforeTheInputs) {
  AddPrefix prefix;
  prefix.prefix = "words: ";
  EXPECT_EQ(rows_text(*prefix.apply(rows(R"([{"inputs": "42"}])"), {})),
            R"([{"inputs":"words: 42"}])");
}

TEST(Preprocessors, FormatPairWritesFieldsAsPythonsFormat) {
  FormatPair pair;
  pair.inputs_format = "{{{question}}} {n} {list}: {x}";
  pair.targets_format = "{answer}";
  EXPECT_EQ(
      rows_text(*pair.apply(
          rows(R"([{"question": "{n}", "n": 3, "list": ["a", "b"], "x": 0.5, "answer": "}"}])"),
          {})),
      R"([{"inputs":"{{n}} 3 a, b: 0.5","targets":"}"}])");
  EXPECT_EQ(FormatPair::fields_of("{a} {{b}} {c d}"), (std::vector<std::string>{"a", "c d"}));
  const std::string missing = message_of(ExitCode::kData, [&] {
    StreamPtr stream = pair.apply(rows(R"([{"question": "a", "answer": "b"}])"), {});
    collect(*stream);
  });
  EXPECT_TRUE(contains(missing, "no field 'n'; there are: ")) << missing;
  for (const char* wrong : {"{a", "a}", "{}", "{a{b}}"}) {
    pair.inputs_format = wrong;
    const std::string refused = message_of(ExitCode::kUsage, [&] { pair.apply(rows("[]"), {}); });
    EXPECT_TRUE(contains(refused, "a brace without its other half")) << wrong << ": " << refused;
  }
}

TEST(Preprocessors, AVocabularyWithoutEosIsAnErrorWhereEosIsWanted) {
  const auto vocabulary = std::make_shared<PassThroughVocabulary>(200);
  const PreprocessContext context{{{"targets", {vocabulary}}}, std::nullopt};
  EXPECT_TRUE(contains(message_of(ExitCode::kUsage,
                                  [&] {
                                    StreamPtr s =
                                        AppendEos{}.apply(rows(R"([{"targets": [5]}])"), context);
                                    collect(*s);
                                  }),
                       "add_eos = False"));
}

TEST(SpanCorruption, ShortTargetsAndImpossibleLengthsAreErrors) {
  const auto build = [](Lengths lengths) {
    SpanCorruption{}.apply(rows("[]"), context_of(std::move(lengths)));
  };
  EXPECT_TRUE(contains(message_of(ExitCode::kUsage,
                                  [&] {
                                    build({{"inputs", 512}, {"targets", 100}});
                                  }),
                       "114"));
  EXPECT_TRUE(contains(message_of(ExitCode::kUsage,
                                  [&] {
                                    build({{"inputs", 1}, {"targets", 8}});
                                  }),
                       "at least 2"));
  EXPECT_TRUE(contains(message_of(ExitCode::kUsage, [&] { build({{"targets", 8}}); }), "'inputs'"));
}

TEST(SpanCorruption, WorksOnTheShortestTexts) {
  for (const char* text : {"[]", R"([{"targets": []}])", R"([{"targets": [5]}])"}) {
    StreamPtr stream =
        SpanCorruption{}.apply(rows(text), context_of({{"inputs", 16}, {"targets", 16}}));
    for (const Example& example : collect(*stream))
      EXPECT_EQ(example.tokens("inputs").size() + example.tokens("targets").size(), 2u);
  }
}

std::string many_texts(int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i) {
    text += i == 0 ? "" : ", ";
    text += R"({"targets": [)";
    for (int j = 0; j <= i % 11; ++j)
      text += (j ? ", " : "") + std::to_string(2 + (i * 7 + j) % 90);
    text += "]}";
  }
  return text + "]";
}

/// Preprocessors that hold examples back: joined, split, cut, expanded, packed.
std::vector<std::pair<std::string, std::function<StreamPtr()>>> holding_streams() {
  static const PreprocessContext context = context_of({{"inputs", 12}, {"targets", 12}});
  const auto source = [] { return rows(many_texts(90)); };
  return {
      {"span_corruption", [=] { return SpanCorruption{}.apply(source(), context); }},
      {"full_lm", [=] { return FullLm{}.apply(source(), context); }},
      {"concatenate", [=] { return ConcatenateAndSplitToFixedLength{}.apply(source(), context); }},
      {"join",
       [=] {
         ReduceConcatTokens join;
         join.batch_size = 7;
         SplitTokens split;
         split.max_tokens_per_segment = 5;
         split.min_tokens_per_segment = 2;
         return split.apply(join.apply(source(), context), context);
       }},
  };
}

TEST(Streams, GoOnExactlyWhereAPositionWasTaken) {
  for (const auto& [name, make] : holding_streams()) {
    SCOPED_TRACE(name);
    std::vector<nlohmann::json> all;
    std::vector<Position> positions(1);
    StreamPtr stream = make();
    stream->save(positions.back());
    Example example;
    while (stream->next(example)) {
      all.push_back(testing::json_of(example));
      positions.emplace_back();
      stream->save(positions.back());
    }
    ASSERT_GT(all.size(), 10u);
    for (size_t at = 0; at <= all.size(); ++at) {
      StreamPtr resumed = make();
      PositionReader reader(positions[at]);
      resumed->restore(reader);
      EXPECT_TRUE(reader.done());
      for (size_t i = at; i < std::min(all.size(), at + 4); ++i) {
        Position before;
        resumed->save(before);
        ASSERT_EQ(before, positions[i]);
        ASSERT_TRUE(resumed->next(example));
        ASSERT_EQ(testing::json_of(example), all[i]) << "from " << at << ", example " << i;
      }
    }
  }
}

TEST(Streams, APositionOfOtherDataIsRefused) {
  StreamPtr stream =
      SpanCorruption{}.apply(rows(many_texts(5)), context_of({{"inputs", 12}, {"targets", 12}}));
  const Position short_one = {3}, far = {3, 0, 40};
  PositionReader a(short_one), b(far);
  EXPECT_THROW(stream->restore(a), Error);
  EXPECT_THROW(stream->restore(b), Error);
}

}  // namespace
}  // namespace quintet::data
