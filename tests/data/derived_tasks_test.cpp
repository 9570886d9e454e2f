// Tasks and mixtures made of others by seqio.helpers and seqio.experimental, as seqio makes them.
#include "data/tasks/derived_tasks.h"

#include "tests/data/gin_tasks.h"
#include "tests/data/rows.h"
#include "tests/harness/fixtures.h"

namespace quintet::data {
namespace {

using nlohmann::json;
using ::quintet::testing::fixture_root;
using testing::contains;
using testing::message_of;

constexpr const char* kDerived = R"(
new/seqio.helpers.mixture_or_task_with_new_vocab:
  mixture_or_task = 'ab'
  new_mixture_or_task_name = 'other'
  new_vocab = @seqio.PartialCodepointVocabulary()
short/seqio.helpers.mixture_or_task_with_truncated_data:
  mixture_or_task = 'ab'
  new_mixture_or_task_name = 'short'
  split_sizes = {'train': 2}
seqio.helpers.mixture_with_missing_task_splits_removed:
  mixture_name = 'ab'
  split = 'validation'
  new_mixture_name = 'with_validation'
seqio.experimental.add_task_with_sentinels.task_name = @a/seqio.Task()
seqio.experimental.add_task_with_sentinels.num_sentinels = 2
seqio.experimental.add_fully_cached_mixture.mixture_name = 'ab'
seqio.experimental.add_fully_cached_mixture.sequence_length = {'inputs': 7, 'targets': 6}
seqio.Mixture.name = 'ab'
seqio.Mixture.tasks = [('a', 2.0), ('b', 1.0)]
seqio.TaskRegistry.tasks = [@a/seqio.Task(), @b/seqio.Task(), @seqio.experimental.add_task_with_sentinels()]
seqio.MixtureRegistry.mixtures = [
    @seqio.Mixture(), @new/seqio.helpers.mixture_or_task_with_new_vocab(),
    @short/seqio.helpers.mixture_or_task_with_truncated_data(),
    @seqio.helpers.mixture_with_missing_task_splits_removed(),
    @seqio.experimental.add_fully_cached_mixture()]
)";

class DerivedTasks : public testing::GinTasks {
 protected:
  /// The fixture's tasks a and b, and what `text` adds.
  TaskRegistry tasks_with(const std::string& text) {
    std::string all = R"(
import seqio
from t5.data import preprocessors
seqio.Feature.vocabulary = @seqio.ByteVocabulary()
seqio.ByteVocabulary.extra_ids = 20
seqio.Task.output_features = {'inputs': @seqio.Feature(), 'targets': @seqio.Feature()}
seqio.Task.preprocessors = [@seqio.preprocessors.tokenize, @seqio.CacheDatasetPlaceholder(),
                            @seqio.preprocessors.append_eos_after_trim]
)";
    for (const auto& [task, splits] : recorded_["rows"].items()) {
      std::string files;
      for (const auto& [split, rows] : splits.items()) {
        std::string lines;
        for (const auto& row : rows)
          lines += row[0].get<std::string>() + "\t" + row[1].get<std::string>() + "\n";
        files += "'" + split + "': '" + write(task + "." + split, lines) + "', ";
      }
      all += task + "/quintet.data.TsvDataSource.split_to_filepattern = {" + files + "}\n" + task +
             "/seqio.Task.name = '" + task + "'\n" + task + "/seqio.Task.source = @" + task +
             "/quintet.data.TsvDataSource()\n";
    }
    return tasks_of(all + "seqio.PartialCodepointVocabulary.codepoints = " +
                    recorded_["codepoints"].dump() + "\n" + text);
  }
  const json recorded_ = [] {
    std::ifstream file(fixture_root() / "seqio" / "derived.json");
    return json::parse(file);
  }();
};

/// Recorded examples have the texts before tokenization, too.
void expect_examples(const Task& task, const StreamPtr& stream, const json& want) {
  json got = json::array();
  for (const Example& example : collect(*stream)) got.push_back(testing::json_of(example));
  EXPECT_EQ(got, want) << task.name();
}

TEST_F(DerivedTasks, AreThoseThatSeqioMakes) {
  const TaskRegistry tasks = tasks_with(kDerived);
  const Lengths lengths = {{"inputs", 7}, {"targets", 6}};
  for (const char* kind :
       {"new_vocab", "truncated", "missing_splits", "sentinels", "fully_cached"}) {
    const json& want = recorded_[kind];
    SCOPED_TRACE(kind);
    for (const auto& name : want["registered"]) EXPECT_TRUE(tasks.has(name)) << name;
    const ProviderPtr made = tasks.get(want["name"]);
    if (const auto* mixture = dynamic_cast<const Mixture*>(made.get())) {
      json rates;
      for (const auto& [part, rate] : mixture->parts())
        rates[part->name()] = std::get<double>(rate);
      EXPECT_EQ(rates, want["rates"]);
    }
    for (const Task* task : made->tasks()) {
      const json& splits = want["examples"].at(task->name());
      EXPECT_EQ(task->splits().size(), splits.size());
      for (const auto& [split, rows] : splits.items()) {
        const bool is_cached = std::string(kind) == "fully_cached";
        if (!is_cached) {
          expect_examples(
              *task, task->stream({.split = split, .sequence_length = lengths, .epochs = 1}), rows);
          continue;
        }
        StreamPtr stream = read_stream(task->config().source->open(split), {.epochs = 1});
        const auto& steps = task->config().preprocessors;
        for (size_t i = 0; i + 2 < steps.size(); ++i)
          stream = steps[i]->apply(std::move(stream), {task->output_features(), std::nullopt});
        expect_examples(*task, stream, rows);
      }
    }
  }
}

TEST_F(DerivedTasks, FullyCachedNamesAreSeqios) {
  for (const auto& row : recorded_["fully_cached_names"]) {
    Lengths lengths;
    for (const auto& [name, length] : row[0].items()) lengths.emplace_back(name, length);
    EXPECT_EQ(fully_cached_name("t", lengths), row[1]);
  }
}

TEST_F(DerivedTasks, FullyCachedOnesTakeTheirLengthsOnlyAndMayForbidShuffling) {
  const TaskRegistry tasks = tasks_with(
      "seqio.TaskRegistry.tasks = [@a/seqio.Task(), @seqio.experimental.add_fully_cached_task()]\n"
      "seqio.experimental.add_fully_cached_task.task_name = 'a'\n"
      "seqio.experimental.add_fully_cached_task.disallow_shuffling = True\n"
      "seqio.experimental.add_fully_cached_task.sequence_length = {'inputs': 7, 'targets': 6}");
  const auto provider = tasks.get("a_i7_t6");
  const auto& task = dynamic_cast<const Task&>(*provider);
  EXPECT_FALSE(task.config().shuffle_buffer_size.has_value());
  const std::string uncached = message_of(ExitCode::kUsage, [&] { task.stream({}); });
  EXPECT_TRUE(contains(uncached, "must be cached")) << uncached;
  const PreprocessorPtr check = task.config().preprocessors.back();
  const auto checked = [&](std::optional<Lengths> asked) {
    check->apply(stream_of({}), {task.output_features(), std::move(asked)});
  };
  checked(std::nullopt);
  checked(Lengths{{"targets", 6}, {"inputs", 7}});
  const std::string other = message_of(ExitCode::kUsage, [&] {
    checked(Lengths{{"inputs", 7}, {"targets", 5}});
  });
  EXPECT_TRUE(contains(other, "is cached for the lengths {'inputs': 7, 'targets': 6}")) << other;
}

TEST_F(DerivedTasks, AddACachePlaceholderBeforeTheFirstStepThatUsesLengths) {
  const TaskRegistry tasks = tasks_with(
      "plain/seqio.Task.preprocessors = [@seqio.preprocessors.tokenize, "
      "@seqio.preprocessors.append_eos_after_trim]\n"
      "plain/seqio.Task.name = 'plain'\nplain/seqio.Task.source = @a/quintet.data.TsvDataSource()\n"
      "seqio.helpers.mixture_or_task_with_new_vocab:\n  mixture_or_task = 'plain'\n"
      "  new_mixture_or_task_name = 'new'\n  add_cache_placeholder = True\n"
      "  new_output_features = {'inputs': @more/seqio.Feature(), 'targets': "
      "@more/seqio.Feature()}\n"
      "more/seqio.Feature.vocabulary = @seqio.PartialCodepointVocabulary()\n"
      "more/seqio.Feature.add_eos = False\n"
      "seqio.TaskRegistry.tasks = [@plain/seqio.Task(), "
      "@seqio.helpers.mixture_or_task_with_new_vocab()]");
  const auto provider = tasks.get("new");
  const auto& task = dynamic_cast<const Task&>(*provider);
  ASSERT_EQ(task.config().preprocessors.size(), 3u);
  EXPECT_NE(dynamic_cast<const CacheDatasetPlaceholder*>(task.config().preprocessors[1].get()),
            nullptr);
  EXPECT_FALSE(task.output_features().front().second.add_eos);
}

TEST_F(DerivedTasks, PartsMayBeLeftOutOfTheRegistry) {
  const TaskRegistry tasks = tasks_with(
      std::string(kDerived) +
      "short/seqio.helpers.mixture_or_task_with_truncated_data.add_to_seqio_registry = False");
  EXPECT_TRUE(tasks.has("short"));
  EXPECT_FALSE(tasks.has("short.a"));
  EXPECT_EQ(tasks.get("short")->tasks().front()->name(), "short.a");
  EXPECT_TRUE(tasks.has("other.a"));
}

TEST_F(DerivedTasks, AreRegisteredWhereTheirGinIs) {
  const std::string short_ = "seqio.helpers.mixture_or_task_with_truncated_data";
  const TaskRegistry tasks = tasks_of(
      "import seqio\nfrom quintet import data\n"
      "seqio.Feature.vocabulary = @seqio.ByteVocabulary()\n"
      "a/seqio.Task.source = @data.NumberWordsDataSource()\n"
      "a/seqio.Task.name = 'a'\n"
      "a/seqio.Task.output_features = {'targets': @seqio.Feature()}\n"
      "seqio.Mixture.tasks = [('a', 1)]\n"
      "seqio.Mixture.name = 'm'\n" +
      short_ + ".mixture_or_task = 'm'\n" + short_ + ".new_mixture_or_task_name = 's'\n" + short_ +
      ".split_sizes = {'train': 1}\n"
      "seqio.TaskRegistry.tasks = [@a/seqio.Task()]\n"
      "seqio.MixtureRegistry.mixtures = [@seqio.Mixture(), @" +
      short_ + "()]\n");
  for (const auto& [name, want] : std::map<std::string, std::string>{
           {"a", "Task test.gin:5"},
           {"m", "Mixture test.gin:8"},
           {"s", "Mixture test.gin:9"},
           {"s.a", "Task test.gin:9"},
           {"number_to_words", "Task built in"},
           {"glue_cola_v002", "Task built in, as t5.data.tasks has it"},
           {"glue_v002_proportional", "Mixture built in, as t5.data.mixtures has it"}}) {
    const auto& [type, place] = tasks.registrations().at(name);
    EXPECT_EQ(type + " " + place, want) << name;
  }
}

TEST_F(DerivedTasks, ErrorsNameTheBinding) {
  const std::string of_a =
      "seqio.helpers.mixture_or_task_with_new_vocab.mixture_or_task = 'a'\n"
      "seqio.helpers.mixture_or_task_with_new_vocab.new_mixture_or_task_name = 'n'\n"
      "seqio.TaskRegistry.tasks = [@a/seqio.Task(), "
      "@seqio.helpers.mixture_or_task_with_new_vocab()]\n";
  const auto message = [&](const std::string& text) {
    return message_of(ExitCode::kUsage, [&] { tasks_with(text); });
  };
  std::string said = message(of_a);
  EXPECT_TRUE(contains(said, "bind one of new_vocab and new_output_features")) << said;
  said = message(of_a +
                 "seqio.helpers.mixture_or_task_with_new_vocab.new_output_features = "
                 "{'targets': @seqio.Feature()}");
  EXPECT_TRUE(contains(said,
                       "new_output_features are targets; those of the original are inputs, "
                       "targets"))
      << said;
  said = message(of_a +
                 "f/seqio.Feature.dtype = 'float32'\n"
                 "seqio.helpers.mixture_or_task_with_new_vocab.new_output_features = "
                 "{'targets': @seqio.Feature(), 'inputs': @f/seqio.Feature()}");
  EXPECT_TRUE(contains(said, "feature 'inputs' of new_output_features has another dtype")) << said;
  said = message(
      "seqio.helpers.mixture_or_task_with_truncated_data.mixture_or_task = 'a'\n"
      "seqio.helpers.mixture_or_task_with_truncated_data.new_mixture_or_task_name = 'n'\n"
      "seqio.helpers.mixture_or_task_with_truncated_data.split_sizes = {'train': 0}\n"
      "seqio.TaskRegistry.tasks = [@seqio.helpers.mixture_or_task_with_truncated_data()]");
  EXPECT_TRUE(contains(said, "test.gin:")) << said;
  EXPECT_TRUE(contains(said, "split 'train' is to keep 0 examples")) << said;
}

}  // namespace
}  // namespace quintet::data
