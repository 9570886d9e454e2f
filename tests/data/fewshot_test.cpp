// Few-shot examples: FewshotDataSource and fewshot_preprocessor.
#include <algorithm>
#include <set>

#include "data/sources/fewshot_source.h"
#include "tests/data/gin_tasks.h"
#include "tests/data/rows.h"
#include "tests/harness/fixtures.h"

namespace quintet::data {
namespace {

using ::quintet::testing::fixture_root;
using testing::contains;
using testing::message_of;
using testing::ordered_json;

TEST(FewshotPreprocessorGolden, WritesWhatSeqioWrites) {
  std::ifstream file(fixture_root() / "seqio" / "derived.json");
  const ordered_json recorded = ordered_json::parse(file)["fewshot_preprocessor"];
  ASSERT_GT(recorded.size(), 4u);
  for (const ordered_json& row : recorded) {
    FewshotPreprocessor step;
    const ordered_json& args = row["args"];
    step.inputs_prefix = args.value("inputs_prefix", "");
    step.targets_prefix = args.value("targets_prefix", "");
    step.example_separator = args.value("example_separator", "\n\n");
    step.prompt = args.value("prompt", "");
    step.reverse = args.value("reverse", false);
    const StreamPtr stream = step.apply(stream_of(testing::examples_of(row["in"])), {});
    nlohmann::json got = nlohmann::json::array();
    for (const Example& example : collect(*stream)) got.push_back(testing::json_of(example));
    EXPECT_EQ(got, nlohmann::json::parse(row["out"].dump())) << row["args"];
  }
}

TEST(FewshotPreprocessor, MakesAnExampleOfEachOfListedInputs) {
  FewshotPreprocessor step;
  step.targets_prefix = " A ";
  const auto rows = ordered_json::parse(
      R"([{"eval": {"inputs": ["a", "b"], "targets": ["1", "2"], "weight": [0.5, 1.5]},
           "train": {"inputs": ["x"], "targets": ["y"]}}])");
  const StreamPtr stream = step.apply(stream_of(testing::examples_of(rows)), {});
  const auto made = collect(*stream);
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(made[1].text("inputs"), "x A y\n\nb A");
  EXPECT_EQ(made[1].text("targets"), "2");
  EXPECT_EQ(made[1].at("weight"), Value(1.5));
}

class Fewshot : public testing::GinTasks {
 protected:
  /// A task over training rows t0 .. t6 and validation rows v0 .. v2.
  std::vector<std::string> inputs_of(const std::string& split, const std::string& text,
                                     bool shuffle = false) {
    std::string train, validation;
    for (int i = 0; i < 7; ++i) train += fmt::format("t{}\t{}\n", i, i);
    for (int i = 0; i < 3; ++i) validation += fmt::format("v{}\t{}\n", i, i);
    const TaskRegistry tasks = tasks_of(
        "import seqio\nfrom t5.data import preprocessors\n"
        "quintet.data.TsvDataSource.split_to_filepattern = {'train': '" +
        write("train.tsv", train) + "', 'validation': '" + write("validation.tsv", validation) +
        "'}\nseqio.experimental.FewshotDataSource.original_source = "
        "@quintet.data.TsvDataSource()\n"
        "seqio.Task.source = @seqio.experimental.FewshotDataSource()\nseqio.Task.name = 'few'\n"
        "seqio.Task.preprocessors = [@seqio.experimental.fewshot_preprocessor, "
        "@seqio.preprocessors.tokenize]\nseqio.Feature.vocabulary = @seqio.ByteVocabulary()\n"
        "seqio.experimental.fewshot_preprocessor.example_separator = ' '\n"
        "seqio.Task.output_features = {'inputs': @seqio.Feature(), 'targets': @seqio.Feature()}\n"
        "seqio.TaskRegistry.tasks = [@seqio.Task()]\n" +
        text);
    const StreamPtr stream =
        tasks.get("few")->stream({.split = split, .shuffle = shuffle, .epochs = 1});
    std::vector<std::string> inputs;
    for (const Example& example : collect(*stream))
      inputs.push_back(example.text("inputs_pretokenized"));
    return inputs;
  }
};

/// "t3" of "t33", a training row's inputs and targets.
std::set<std::string> shots_of(const std::string& inputs) {
  std::set<std::string> shots;
  for (size_t at = inputs.find('t'); at != std::string::npos; at = inputs.find('t', at + 1))
    shots.insert(inputs.substr(at, 2));
  return shots;
}

TEST_F(Fewshot, ExamplesHaveShotsOfAPermutationOfTheTrainingSplit) {
  const std::string two = "seqio.experimental.FewshotDataSource.num_shots = 2\n";
  const auto inputs = inputs_of("validation", two);
  ASSERT_EQ(inputs.size(), 3u);
  std::set<std::string> all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_TRUE(inputs[i].ends_with(fmt::format(" v{}", i))) << inputs[i];
    EXPECT_EQ(shots_of(inputs[i]).size(), 2u) << inputs[i];
    all.merge(shots_of(inputs[i]));
  }
  EXPECT_EQ(all.size(), 6u);  // of 7, none twice before all were there
  auto shuffled = inputs_of("validation", two, true);
  std::sort(shuffled.begin(), shuffled.end());
  auto sorted = inputs;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(shuffled, sorted);
  EXPECT_EQ(inputs_of("train", two).size(), 7u);  // three passes over the shots
}

TEST_F(Fewshot, FixedExemplarsAreTheSameForAllButTheTrainingSplit) {
  const std::string fixed =
      "seqio.experimental.FewshotDataSource.num_shots = 3\n"
      "seqio.experimental.FewshotDataSource.eval_on_fixed_exemplars = True\n";
  const auto inputs = inputs_of("validation", fixed);
  EXPECT_EQ(shots_of(inputs[0]), shots_of(inputs[2]));
  const auto train = inputs_of("train", fixed);
  std::set<std::set<std::string>> sets;
  for (const std::string& text : train) sets.insert(shots_of(text.substr(0, text.rfind(' '))));
  EXPECT_GT(sets.size(), 2u);
}

TEST_F(Fewshot, NoShotsLeaveTheExampleAlone) {
  EXPECT_EQ(inputs_of("validation", "seqio.experimental.FewshotDataSource.num_shots = 0"),
            (std::vector<std::string>{"v0", "v1", "v2"}));
}

TEST_F(Fewshot, PreprocessorsRunBeforeAndErrorsSayWhat) {
  const std::string one = "seqio.experimental.FewshotDataSource.num_shots = 1\n";
  const auto inputs = inputs_of(
      "validation",
      one +
          "swap/preprocessors.rekey.key_map = {'inputs': 'targets', 'targets': 'inputs'}\n"
          "seqio.experimental.FewshotDataSource.eval_preprocessors = [@swap/preprocessors.rekey]");
  EXPECT_TRUE(inputs[1].ends_with(" 1")) << inputs[1];
  std::string said = message_of(ExitCode::kUsage, [&] {
    inputs_of("validation", one + "seqio.experimental.FewshotDataSource.train_split = 'dev'");
  });
  EXPECT_TRUE(contains(said, "train_split 'dev' is not one of the source's splits")) << said;
  said = message_of(ExitCode::kData, [&] {
    inputs_of("validation",
              one + "seqio.experimental.FewshotDataSource.train_feature_keys = ['question']");
  });
  EXPECT_TRUE(contains(said, "question")) << said;
  said = message_of(ExitCode::kUsage, [&] {
    inputs_of("validation", "seqio.experimental.FewshotDataSource.num_shots = -1");
  });
  EXPECT_TRUE(contains(said, "test.gin:")) << said;
}

}  // namespace
}  // namespace quintet::data
