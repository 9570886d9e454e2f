#include "data/converters/packing.h"

#include "data/converters/feature_converter.h"
#include "data/examples/random.h"
#include "tests/data/files.h"
#include "tests/data/rows.h"

namespace quintet::data {
namespace {

using testing::contains;
using testing::message_of;
using testing::rows;
using testing::rows_text;

TEST(Packing, FillsOneRowAtATime) {
  StreamPtr packed =
      trim_and_pack(rows(R"([{"targets": [3, 4, 1]}, {"targets": [5, 1]}, {"targets": [6, 1]}])"),
                    {{"targets", 5}});
  EXPECT_EQ(rows_text(*packed), R"([{"targets":[3,4,1,5,1],"targets_positions":[0,1,2,0,1],)"
                                R"("targets_segment_ids":[1,1,1,2,2]},)"
                                R"({"targets":[6,1,0,0,0],"targets_positions":[0,1,0,0,0],)"
                                R"("targets_segment_ids":[1,1,0,0,0]}])");
}

TEST(Packing, AFeatureThatIsTooLongIsTrimmed) {
  StreamPtr packed = trim_and_pack(rows(R"([{"targets": [3, 4, 5, 6, 1]}])"), {{"targets", 3}});
  Example row;
  ASSERT_TRUE(packed->next(row));
  EXPECT_EQ(row.tokens("targets"), (Tokens{3, 4, 5}));
}

TEST(Packing, NothingInNothingOut) {
  EXPECT_EQ(rows_text(*trim_and_pack(rows("[]"), {{"targets", 3}})), "[]");
  EXPECT_EQ(rows_text(*trim_and_pad(rows("[]"), {{"targets", 3}})), "[]");
}

TEST(Packing, AMissingFeatureIsNamed) {
  EXPECT_TRUE(contains(
      message_of(ExitCode::kData,
                 [] {
                   StreamPtr packed = trim_and_pack(rows(R"([{"inputs": [3]}])"), {{"targets", 3}});
                   Example row;
                   packed->next(row);
                 }),
      "feature 'targets' is missing"));
}

TEST(Packing, BestFitPutsTheLongestFirstAndKeepsTheOrder) {
  const std::string three =
      R"([{"targets": [2, 1]}, {"targets": [3, 4, 5, 1]}, {"targets": [6, 7, 1]}, {"targets": [8]}])";
  StreamPtr packed = trim_and_pack(rows(three), {{"targets", 5}}, Packing::best_fit);
  EXPECT_EQ(rows_text(*packed), R"([{"targets":[2,1,6,7,1],"targets_positions":[0,1,0,1,2],)"
                                R"("targets_segment_ids":[1,1,2,2,2]},)"
                                R"({"targets":[3,4,5,1,8],"targets_positions":[0,1,2,3,0],)"
                                R"("targets_segment_ids":[1,1,1,1,2]}])");
  // In order, one row at a time, it takes three rows.
  EXPECT_EQ(collect(*trim_and_pack(rows(three), {{"targets", 5}})).size(), 3u);
}

TEST(Packing, BestFitIsDenser) {
  Random random(key_from_seed(5));
  std::vector<Example> examples(512);
  for (Example& example : examples)
    example.set("targets", Tokens(static_cast<size_t>(40 + random.below(300)), 7));
  const Lengths lengths = {{"targets", 512}};
  const size_t greedy = collect(*trim_and_pack(stream_of(examples), lengths)).size();
  const size_t best =
      collect(*trim_and_pack(stream_of(examples), lengths, Packing::best_fit)).size();
  int64_t tokens = 0;
  for (const Example& example : examples)
    tokens += static_cast<int64_t>(example.tokens("targets").size());
  EXPECT_LT(static_cast<double>(best) * 512, 1.03 * static_cast<double>(tokens));
  EXPECT_GT(static_cast<double>(greedy) * 512, 1.15 * static_cast<double>(tokens));
}

/// Random lengths: every token comes out once, in order (best fit: examples in any), and no segment
/// crosses a row.
class PackingOfAnyKind : public ::testing::TestWithParam<Packing> {};
INSTANTIATE_TEST_SUITE_P(Both, PackingOfAnyKind,
                         ::testing::Values(Packing::greedy, Packing::best_fit));

TEST_P(PackingOfAnyKind, LosesNothingAndCutsNothing) {
  Random random(key_from_seed(3));
  for (int trial = 0; trial < 60; ++trial) {
    const Lengths lengths = {{"inputs", 1 + random.below(20)}, {"targets", 1 + random.below(20)}};
    std::vector<Example> examples;
    std::map<std::string, std::vector<Tokens>> want;
    int32_t next_id = 1;
    for (int64_t i = random.below(60); i >= 0; --i) {
      Example example;
      for (const auto& [name, length] : lengths) {
        Tokens tokens(static_cast<size_t>(1 + random.below(length)));
        for (int32_t& id : tokens) id = next_id++;
        want[name].push_back(tokens);
        example.set(name, tokens);
      }
      examples.push_back(std::move(example));
    }
    StreamPtr packed = trim_and_pack(stream_of(std::move(examples)), lengths, GetParam());
    std::map<std::string, std::vector<Tokens>> got;
    for (const Example& row : collect(*packed))
      for (const auto& [name, length] : lengths) {
        const Tokens& ids = row.tokens(name);
        const Tokens& segments = row.tokens(name + "_segment_ids");
        const Tokens& positions = row.tokens(name + "_positions");
        ASSERT_EQ(static_cast<int64_t>(ids.size()), length);
        int32_t segment = 0;
        for (size_t i = 0; i < ids.size(); ++i) {
          if (segments[i] == 0) {
            EXPECT_EQ(ids[i], 0);
            continue;
          }
          if (segments[i] != segment) {
            EXPECT_EQ(segments[i], segment + 1);
            EXPECT_EQ(positions[i], 0);
            segment = segments[i];
            got[name].emplace_back();
          }
          EXPECT_EQ(positions[i], static_cast<int32_t>(got[name].back().size()));
          got[name].back().push_back(ids[i]);
        }
      }
    for (size_t i = 0; i < got["inputs"].size();
         ++i)  // an example's features are in the same segment
      EXPECT_EQ(got["targets"][i].front(), got["inputs"][i].back() + 1);
    if (GetParam() == Packing::best_fit)  // ids ascend with examples, in both features alike
      for (auto& [name, all] : got) std::sort(all.begin(), all.end());
    EXPECT_EQ(got, want);
  }
}

TEST(Converters, LengthsAndFeaturesThatDoNotFitAreErrors) {
  const auto converter = make_feature_converter("EncDecFeatureConverter", {});
  const auto run = [&](const std::string& text, const Lengths& lengths) {
    StreamPtr stream = converter->convert(rows(text), lengths);
    Example example;
    stream->next(example);
  };
  const std::string row = R"([{"inputs": [5, 6, 7], "targets": [1]}])";
  EXPECT_TRUE(contains(message_of(ExitCode::kUsage,
                                  [&] {
                                    run(row, {{"inputs", 3}});
                                  }),
                       "'targets'"));
  EXPECT_TRUE(contains(message_of(ExitCode::kUsage,
                                  [&] {
                                    run(row, {{"inputs", 0}, {"targets", 3}});
                                  }),
                       "is 0"));
  EXPECT_TRUE(contains(message_of(ExitCode::kUsage,
                                  [&] {
                                    run(row, {{"inputs", 3}, {"targets", 3}, {"other", 3}});
                                  }),
                       "'other'"));
  EXPECT_TRUE(contains(message_of(ExitCode::kData,
                                  [&] {
                                    run(row, {{"inputs", 2}, {"targets", 3}});
                                  }),
                       "'inputs' has 3 ids, expected at most 2"));
  EXPECT_TRUE(contains(message_of(ExitCode::kUsage, [] { make_feature_converter("NoSuch", {}); }),
                       "PrePackedLMFeatureConverter"));
  EXPECT_TRUE(contains(
      message_of(ExitCode::kUsage, [] { make_feature_converter("EncoderFeatureConverter", {}); }),
      "mask_id"));
}

}  // namespace
}  // namespace quintet::data
