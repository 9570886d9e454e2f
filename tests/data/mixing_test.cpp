// Rates of mixtures: numbers, computed ones, mixtures in mixtures; T5's own tasks and mixtures.
#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "data/preprocessors/token_preprocessors.h"
#include "data/t5/sentinels.h"
#include "data/tasks/mixing_rates.h"
#include "tests/data/gin_tasks.h"
#include "tests/data/rows.h"
#include "tests/harness/fixtures.h"

namespace quintet::data {
namespace {

using ::quintet::testing::fixture_root;
using testing::contains;
using testing::message_of;

/// A task of `examples` examples {targets: [id]}, with further splits.
ProviderPtr task(const std::string& name, int64_t examples, int32_t id,
                 std::vector<std::string> splits = {"train"}) {
  std::map<std::string, FunctionDataSource::Split> by_split;
  for (const std::string& split : splits)
    by_split[split] = {examples, [id](int64_t, Example& out) { out.set("targets", Tokens{id}); }};
  return std::make_shared<Task>(Task::Config{
      .name = name,
      .source = std::make_shared<FunctionDataSource>(name, by_split),
      .preprocessors = {},
      .output_features = {{"targets", {std::make_shared<PassThroughVocabulary>(99, 1)}}}});
}

std::map<int32_t, int> drawn(const Provider& mixture, int draws,
                             const std::string& split = "train") {
  const StreamPtr stream = mixture.stream({.split = split});
  std::map<int32_t, int> counts;
  Example example;
  for (int i = 0; i < draws && stream->next(example); ++i) ++counts[example.tokens("targets")[0]];
  return counts;
}

TEST(MixingRates, AreThoseOfSeqio) {
  const auto file = fixture_root() / "seqio" / "cache" / "mixing.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  const Json json = Json::read(file);
  std::map<std::string, double> examples;
  for (const Json& row : json["mixing_rate_num_examples"].items()) {
    ExamplesRate options;
    for (const auto& [key, value] : row["args"].members()) {
      if (key == "maximum") options.maximum = value.as_double();
      if (key == "scale") options.scale = value.as_double();
      if (key == "temperature") options.temperature = value.as_double();
    }
    for (const auto& [name, rate] : row.members()) {
      if (name == "args") continue;
      if (row["args"].size() == 0) examples[name] = rate.as_double();
      EXPECT_NEAR(mixing_rate(examples.at(name), options), rate.as_double(),
                  1e-9 * rate.as_double())
          << row.path() << " " << name;
    }
  }
  // Tasks of those sizes, mixed: the second one's share of 2,000 draws.
  for (const Json& row : json["sampling"].items()) {
    const auto draws = static_cast<double>(row["draws"].as_int());
    std::vector<Mixture::Part> parts;
    double total = 0, last = 0;
    int32_t id = 1;
    for (const auto& [name, rate] : row["rates"].members()) {
      parts.emplace_back(task(name, 50, ++id), rate.as_double());
      total += last = rate.as_double();
    }
    const Mixture mixture("mixture", parts);
    const double share = last / total, error = std::sqrt(share * (1 - share) * draws);
    EXPECT_NEAR(drawn(mixture, static_cast<int>(draws))[id], share * draws, 4 * error);
    EXPECT_NEAR(row["from_wide"].as_double(), share * draws, 4 * error);
  }
}

TEST(Mixture, InAMixtureDividesItsRate) {
  const auto a = task("a", 10, 5), b = task("b", 30, 6), c = task("c", 10, 7);
  const auto inner = std::make_shared<Mixture>(
      "inner", std::vector<Mixture::Part>{{a, examples_rate()}, {b, examples_rate()}});
  const Mixture outer("outer", {{inner, 2.0}, {c, 1.0}, {a, 0.5}});
  ASSERT_EQ(outer.tasks().size(), 3u);
  EXPECT_EQ(outer.rates({}), (std::vector<double>{2.0 * 10 / 40 + 0.5, 2.0 * 30 / 40, 1.0}));
  auto counts = drawn(outer, 3500);
  EXPECT_NEAR(counts[5], 1000, 4 * std::sqrt(3500 * 2 / 7.0 * 5 / 7));
  EXPECT_NEAR(counts[6], 1500, 4 * std::sqrt(3500 * 3 / 7.0 * 4 / 7));
}

TEST(Mixture, EndsWithItsFirstTaskAsInSeqioOrWithTheLast) {
  const auto file = fixture_root() / "semantics" / "mixture_end.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  for (const Json& row : Json::read(file).items()) {
    const bool stops = row["stop_on_empty_dataset"].as_bool();
    const auto examples = row["examples"].as_ints(), given = row["given"].as_ints();
    const Mixture mixture("mixture",
                          {{task("few", examples[0], 1), 1.0}, {task("many", examples[1], 2), 1.0}},
                          stops);
    const StreamPtr stream = mixture.stream({.seed = 3, .epochs = 1});
    std::map<int32_t, int64_t> counts;
    for (const Example& example : collect(*stream)) ++counts[example.tokens("targets")[0]];
    EXPECT_EQ(counts[1], given[0]) << stops;
    if (stops) {  // as many of the other as random draws give
      const double wide = 5 * std::sqrt(2 * static_cast<double>(given[0]));
      for (const int64_t other : {counts[2], given[1]})
        EXPECT_LE(std::abs(static_cast<double>(other - given[0])), wide);
    } else {
      EXPECT_EQ(counts[2], given[1]);
    }
    Example none;
    EXPECT_FALSE(stream->next(none)) << "an end is an end";
    Position position;
    stream->save(position);
    const StreamPtr again = mixture.stream({.seed = 3, .epochs = 1});
    PositionReader reader(position);
    again->restore(reader);
    EXPECT_FALSE(again->next(none));
  }
}

TEST(MixingRates, ByCharactersAreThoseOfSeqio) {
  const auto file = fixture_root() / "semantics" / "characters.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  const StreamOptions stream{.cache_dirs = {(fixture_root() / "seqio/cache/cache").string()}};
  const auto cached = task("oracle_tsv", 5, 1);
  for (const Json& row : Json::read(file).items()) {
    const double want = row["rate"].as_double();
    EXPECT_NEAR(
        characters_rate(*cached, stream,
                        {row["temperature"].as_double(), row["char_count_name"].as_string()}),
        want, 1e-9 * want)
        << row.path();
  }
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { characters_rate(*cached, stream, {}); }),
                       "has no 'text_chars'; make the cache with --enable_char_counts"));
  EXPECT_TRUE(contains(message_of(ExitCode::kUsage, [&] { characters_rate(*cached, {}, {}); }),
                       "quintet cache --tasks=oracle_tsv"));
}

TEST(Mixture, LeavesOutTasksWithoutTheSplit) {
  const auto a = task("a", 10, 5), b = task("b", 10, 6, {"train", "validation"});
  const Mixture mixture("mixture", {{a, 1.0}, {b, 1.0}});
  EXPECT_EQ(mixture.splits(), (std::vector<std::string>{"train", "validation"}));
  EXPECT_EQ(drawn(mixture, 20, "validation").count(5), 0u);
  EXPECT_EQ(drawn(mixture, 200).size(), 2u);
  EXPECT_TRUE(contains(message_of(ExitCode::kUsage, [&] { drawn(mixture, 1, "test"); }),
                       "has a split 'test'; it has train, validation"));
}

class GinMixtures : public testing::GinTasks {};

TEST_F(GinMixtures, RatesAreNumbersOrFunctions) {
  const std::string a = write("a.txt", "1\n2\n3\n4\n"), b = write("b.txt", "5\n6\n7\n8\n9\n");
  const auto tasks = tasks_of(R"(
import seqio
import t5.data
import tensorflow as tf
from t5.data import preprocessors
seqio.Feature.vocabulary = @seqio.PassThroughVocabulary()
seqio.PassThroughVocabulary.size = 50
seqio.PassThroughVocabulary.eos_id = 1
preprocessors.rekey.key_map = {'targets': 'text'}
seqio.Task:
  preprocessors = [@preprocessors.rekey, @seqio.preprocessors.tokenize]
  output_features = {'targets': @seqio.Feature()}
a/seqio.Task.name = 'a'
a/seqio.Task.source = @a/seqio.TextLineDataSource()
a/seqio.TextLineDataSource.split_to_filepattern = {'train': ')" +
                              a + R"('}
b/seqio.Task.name = 'b'
b/seqio.Task.source = @b/seqio.TextLineDataSource()
b/seqio.TextLineDataSource.split_to_filepattern = {'train': ')" +
                              b + R"('}
seqio.TaskRegistry.tasks = [@a/seqio.Task(), @b/seqio.Task()]
limited/seqio.mixing_rate_num_examples.maximum = 2
computed/seqio.Mixture:
  name = 'computed'
  tasks = [('a', @seqio.mixing_rate_num_examples), ('b', @limited/seqio.mixing_rate_num_examples)]
  sample_fn = @tf.data.Dataset.sample_from_datasets
nested/seqio.Mixture:
  name = 'nested'
  tasks = ['b', ('computed', 3), ('a', @t5.data.rate_unsupervised)]
  default_rate = @t5.data.rate_num_examples
t5.data.rate_num_examples.temperature = 2.0
t5.data.rate_unsupervised.value = 7
seqio.MixtureRegistry.mixtures = [@computed/seqio.Mixture(), @nested/seqio.Mixture()]
)");
  const auto rates = [&](const std::string& name) {
    return dynamic_cast<const Mixture&>(*tasks.get(name)).rates({});
  };
  EXPECT_EQ(rates("computed"), (std::vector<double>{4, 2}));
  const auto length = [&](const std::string& name) {
    return collect(*tasks.get(name)->stream({.epochs = 1})).size();
  };
  EXPECT_EQ(length("computed"), 9u);  // sample_fn goes on to the end of the last
  EXPECT_LT(length("nested"), 9u);
  const auto nested = rates("nested");
  ASSERT_EQ(nested.size(), 2u);
  EXPECT_DOUBLE_EQ(nested[0], std::sqrt(5.0) + 3 * 2 / 6.0);
  EXPECT_DOUBLE_EQ(nested[1], 3 * 4 / 6.0 + 7);
}

TEST(TaskRegistry, BuiltInTasksAreMadeOnRequestAndGiveWay) {
  TaskRegistry registry;
  int made = 0;
  registry.add("built_in", [&](const TaskRegistry&) {
    ++made;
    return task("built_in", 3, 5);
  });
  registry.add("hidden", [](const TaskRegistry&) -> ProviderPtr { throw Bug("must not be made"); });
  registry.add(task("hidden", 3, 6));
  EXPECT_EQ(registry.names(), (std::vector<std::string>{"built_in", "hidden"}));
  EXPECT_EQ(made, 0);
  EXPECT_EQ(registry.get("built_in"), registry.get("built_in"));
  EXPECT_EQ(made, 1);
  EXPECT_EQ(drawn(*registry.get("hidden"), 1).count(6), 1u);
  EXPECT_THROW(registry.add(task("hidden", 3, 6)), Error);
}

/// Every task and mixture that importing t5.data.mixtures registers in Python.
TEST_F(GinMixtures, T5sOwnTasksAndMixturesAreBuiltIn) {
  const auto file = fixture_root() / "seqio" / "more" / "t5_registry.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  TaskRegistry made = tasks_of(
      "import seqio\nimport t5.data.mixtures\nfrom t5.data import tasks\n"
      "VOCABULARY = @seqio.ByteVocabulary()\nseqio.ByteVocabulary.extra_ids = 100");
  const TaskRegistry tasks = std::move(made);  // mixtures find their tasks wherever it is
  const Json json = Json::read(file);
  for (const auto& [name, want] : json["tasks"].members()) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(tasks.has(name));
    const auto provider = tasks.get(name);
    const auto& got = dynamic_cast<const Task&>(*provider).config();
    EXPECT_EQ(static_cast<int64_t>(got.preprocessors.size()), want["preprocessors"].as_int());
    EXPECT_EQ(static_cast<int64_t>(got.metric_fns.size()), want["metrics"].as_int());
    EXPECT_EQ(static_cast<bool>(got.postprocess_fn), want["postprocess"].as_bool());
    EXPECT_EQ(got.output_features.size(), want["features"].size());
    for (const auto& [feature, flags] : want["features"].members()) {
      const Feature* found = find_feature(got.output_features, feature);
      ASSERT_NE(found, nullptr) << feature;
      EXPECT_EQ(found->add_eos, flags[0].as_bool()) << feature;
      EXPECT_EQ(found->required, flags[1].as_bool()) << feature;
      EXPECT_EQ(found->vocabulary->description(), "ByteVocabulary(extra_ids=100)");
    }
  }
  for (const auto& [name, want] : json["mixtures"].members()) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(tasks.has(name));
    const auto provider = tasks.get(name);
    const auto& parts = dynamic_cast<const Mixture&>(*provider).parts();
    EXPECT_EQ(parts.size(), want.size());
    for (const auto& [part, rate] : parts) {
      ASSERT_TRUE(want.has(part->name())) << part->name();
      const Json want_rate = want[part->name()];
      if (want_rate.is_string()) {
        EXPECT_TRUE(std::holds_alternative<double>(rate) == false) << part->name();
      } else {
        EXPECT_EQ(std::get<double>(rate), want_rate.as_double()) << part->name();
      }
    }
  }
}

/// t5x/contrib/gpu/scripts_gpu/seqio_tasks.py: T5's tasks of other data sets.
TEST_F(GinMixtures, TasksOfT5xsContribGpuAreBuiltIn) {
  const TaskRegistry tasks = tasks_of(
      "import seqio\nimport t5.data.mixtures\n"
      "VOCABULARY = @seqio.ByteVocabulary()\nseqio.ByteVocabulary.extra_ids = 100");
  const auto parts = [&](const std::string& name) {
    const auto provider = tasks.get(name);
    const auto& config = dynamic_cast<const Task&>(*provider).config();
    return std::tuple(config.preprocessors.size(), config.metric_fns.size(),
                      static_cast<bool>(config.postprocess_fn), config.output_features.size());
  };
  EXPECT_EQ(parts("the_pile_span_corruption"), parts("c4_v220_span_corruption"));
  for (const std::string set : {"cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "mnli_mismatched",
                                "mnli_matched", "qnli", "rte", "wnli", "ax"})
    EXPECT_EQ(parts("glue_" + set + "_v2"), parts("glue_" + set + "_v002")) << set;
}

TEST_F(GinMixtures, T5sVocabularyThatIsNotHereIsAnErrorWithAWayOut) {
  const auto tasks = tasks_of("import t5.data.mixtures");
  const std::string message = message_of(ExitCode::kData, [&] { tasks.get("glue_cola_v002"); });
  EXPECT_TRUE(contains(message, "--path_map=gs://t5-data=FOLDER")) << message;
  EXPECT_TRUE(contains(message, "get_default_vocabulary.sentencepiece_model_file")) << message;
}

TEST_F(GinMixtures, TasksWithSentinelsEndAndBeginWithThem) {
  const auto vocabulary = std::make_shared<PassThroughVocabulary>(200, 1);
  Task::Config task{.name = "t",
                    .source = std::make_shared<FunctionDataSource>(
                        "t",
                        std::map<std::string, FunctionDataSource::Split>{
                            {"train",
                             {1,
                              [](int64_t, Example& out) {
                                out.set("inputs", Tokens{5, 6, 7, 8});
                                out.set("targets", Tokens{9});
                              }}}}),
                    .preprocessors = {std::make_shared<AppendEosAfterTrim>()},
                    .output_features = {{"inputs", {vocabulary}}, {"targets", {vocabulary}}}};
  add_sentinels(task, 1);
  const Task made(task);
  const StreamPtr stream =
      made.stream({.sequence_length = Lengths{{"inputs", 4}, {"targets", 8}}, .epochs = 1});
  EXPECT_EQ(testing::rows_text(*stream), R"([{"inputs":[5,6,199,1],"targets":[199,9,1]}])");
  EXPECT_EQ(made.postprocess("199 yes", Example(), false), Answer("yes"));
  EXPECT_EQ(made.postprocess("no", Example(), false), Answer("no"));
  EXPECT_EQ(sentinel_task_name("super_glue_wsc_v102_simple_eval", 1),
            "super_glue_wsc_v102_simple_1_sentinel_eval");
}

}  // namespace
}  // namespace quintet::data
