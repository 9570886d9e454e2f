// `quintet data lengths`.
#include "data/show/length_statistics.h"

#include "tests/data/files.h"
#include "tests/data/rows.h"

namespace quintet::data {
namespace {

TEST(LengthStatistics, PercentilesAreNumpys) {
  const std::vector<int64_t> sizes = {1, 2, 4, 7, 11, 30};
  for (const auto& [p, want] :
       {std::pair(0.0, 1.0), std::pair(0.1, 1.5), std::pair(0.5, 5.5), std::pair(0.9, 20.5),
        std::pair(0.95, 25.25), std::pair(0.99, 29.05), std::pair(1.0, 30.0)})
    EXPECT_NEAR(percentile(sizes, p), want, 1e-12) << p;
  EXPECT_EQ(percentile({3}, 0.7), 3);
}

/// Example i has i + 1 ids.
ProviderPtr growing() {
  return std::make_shared<Task>(Task::Config{
      .name = "growing",
      .source = std::make_shared<FunctionDataSource>(
          "growing",
          std::map<std::string, FunctionDataSource::Split>{
              {"train",
               {10, [](int64_t i, Example& out) { out.set("targets", Tokens(i + 1, 5)); }}}}),
      .preprocessors = {},
      .output_features = {{"targets", {std::make_shared<PassThroughVocabulary>(99, 1)}}}});
}

std::string printed(const ShowOptions& show, const LengthOptions& options) {
  std::FILE* file = std::tmpfile();
  print_length_statistics(*growing(), show, options, file);
  std::string text(static_cast<size_t>(std::ftell(file)), ' ');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

TEST(LengthStatistics, CountTheFirstExamplesCutToTheirLengths) {
  EXPECT_EQ(printed({}, {.percentiles = {0.5, 1}, .examples = 5}),
            "train targets, 5 examples: p50 3.0 p100 5.0\n");
  EXPECT_EQ(printed({.lengths = {{"targets", 7}}, .json = true}, {.percentiles = {0.995}}),
            "{\"split\":\"train\",\"feature\":\"targets\",\"examples\":10,\"p99.5\":7.0}\n");
  const std::string said = testing::message_of(ExitCode::kData, [] {
    printed({.lengths = {{"inputs", 7}}}, {});
  });
  EXPECT_TRUE(testing::contains(said, "no example of split 'train' has a feature 'inputs'"))
      << said;
}

}  // namespace
}  // namespace quintet::data
