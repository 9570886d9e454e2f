// t5.data.postprocessors on examples, and tasks that name them in gin.
#include "data/metrics/postprocessors.h"

#include "data/configurables/configurables.h"
#include "data/tasks/task.h"
#include "runtime/gin/config.h"
#include "tests/data/files.h"

namespace quintet::data {
namespace {

using testing::contains;
using testing::FileTest;
using testing::message_of;

Example example_of(std::vector<Example::Item> items) {
  Example example;
  for (auto& [name, value] : items) example.set(name, std::move(value));
  return example;
}

TEST(Postprocessors, QuestionsGiveAllAnswersAsTheTarget) {
  const Example example =
      example_of({{"answers", std::vector<std::string>{"Paris", "paris, France"}},
                  {"context", "about Paris"},
                  {"idx/passage", int64_t{3}},
                  {"idx/query", int64_t{7}}});
  const Answer all = Answers{"Paris", "paris, France"};
  EXPECT_EQ(postprocessors::qa()("decoded", example, true), all);
  EXPECT_EQ(postprocessors::qa()("decoded", example, false), Answer("decoded"));
  EXPECT_EQ(postprocessors::span_qa()("decoded", example, true),
            Answer(Fields{{"answers", all}, {"context", "about Paris"}}));
  EXPECT_EQ(postprocessors::record()("decoded", example, true),
            Answer(Fields{{"value", all}, {"group", Answers{3, 7}}}));
  EXPECT_EQ(postprocessors::record()("decoded", example, false),
            Answer(Fields{{"value", "decoded"}}));
}

TEST(Postprocessors, MultircGroupsTargetsByTheirQuestion) {
  const Example example = example_of({{"idx/question", int64_t{12}}});
  EXPECT_EQ(postprocessors::multirc()("True", example, true),
            Answer(Fields{{"value", 1}, {"group", 12}}));
  EXPECT_EQ(postprocessors::multirc()("true", example, false), Answer(Fields{{"value", -1}}));
}

TEST(Postprocessors, WscComparesWithTheReferent) {
  const auto judge = [](const char* prediction, const char* referent) {
    const Example example = example_of({{"label", int64_t{1}}, {"targets_pretokenized", referent}});
    EXPECT_EQ(postprocessors::wsc_simple()("x", example, true), Answer(1));
    return postprocessors::wsc_simple()(prediction, example, false).integer();
  };
  EXPECT_EQ(judge("The fuzzy bunny", "bunny"), 1);
  EXPECT_EQ(judge("bunny", "my Fuzzy Bunny "), 1);
  EXPECT_EQ(judge("Bob", "Bob's hat"), 0);
  EXPECT_EQ(judge("the hat of Bob", "a red hat"), 0);
  EXPECT_EQ(judge("  the ", "bunny"), -1);
}

TEST(Postprocessors, RankClassificationKeepsWhatTheMetricNeeds) {
  Example example = example_of({{"idx", Tokens{4, 1}},
                                {"is_correct", int64_t{1}},
                                {"targets", Tokens{5, 6, 1}},
                                {"id", "x9"}});
  EXPECT_EQ(postprocessors::rank_classification()("", example, true),
            Answer(Answers{Answers{4, 1}, 1, 1.0, 3}));
  example.set("weight", 0.5);
  EXPECT_EQ(postprocessors::rank_classification({"id"})("", example, true),
            Answer(Answers{Answers{4, 1}, 1, 0.5, 3, "x9"}));
  EXPECT_EQ(postprocessors::rank_classification()(-1.5, example, false), Answer(-1.5));
}

TEST(Postprocessors, AMissingFeatureIsAnErrorThatNamesIt) {
  const std::string message = message_of(ExitCode::kData, [] {
    postprocessors::qa()("x", example_of({{"inputs", "y"}}), true);
  });
  EXPECT_TRUE(contains(message, "answers")) << message;
}

class PostprocessedTask : public FileTest {};

TEST_F(PostprocessedTask, IsNamedInGin) {
  gin::Registry names;
  register_data(names);
  gin::Config config(names, gin::Config::Options());
  config.parse_text(R"(
import seqio
from rouge_score import tokenizers
from t5.data import postprocessors
from t5.evaluation import metrics
seqio.Feature.vocabulary = @seqio.ByteVocabulary()
seqio.TextLineDataSource.split_to_filepattern = {'train': ')" +
                        write("t.txt", "x\n") + R"('}
seqio.Task:
  name = 'judged'
  source = @seqio.TextLineDataSource()
  output_features = {'targets': @seqio.Feature()}
  postprocess_fn = [@postprocessors.lower_text, @postprocessors.string_label_to_class_id]
  metric_fns = [@cb/metrics.mean_multiclass_f1, @cola/metrics.sklearn_metrics_wrapper,
                @metrics.deduplicate_metric, @metrics.rank_classification,
                @plain/metrics.rouge_mean, @stems/metrics.rouge_mean, @bytes/metrics.rouge_mean]
metrics.rouge_mean.score_keys = ('rouge1',)
stems/metrics.rouge_mean.tokenizer = @tokenizers.DefaultTokenizer()
tokenizers.DefaultTokenizer.use_stemmer = True
bytes/metrics.rouge_mean.tokenizer = @seqio.ByteVocabulary()
postprocessors.string_label_to_class_id.label_classes = ['no', 'yes']
cb/metrics.mean_multiclass_f1.num_classes = 3
cola/metrics.sklearn_metrics_wrapper.metric_str = 'matthews_corrcoef'
cola/metrics.sklearn_metrics_wrapper.metric_post_process_fn = 100
metrics.deduplicate_metric.metric_fn = @metrics.squad
seqio.TaskRegistry.tasks = [@seqio.Task()]
)",
                    "test.gin");
  config.finalize();
  const TaskRegistry registry = make_task_registry(config);
  const Task& task = *registry.get("judged")->tasks().front();
  EXPECT_EQ(task.postprocess("YES", Example(), false), Answer(1));
  ASSERT_EQ(task.metric_fns().size(), 7u);
  EXPECT_EQ(task.metric_fns()[0].name, "mean_3class_f1");
  EXPECT_EQ(task.metric_fns()[1]({0, 1}, {0, 1}), (MetricValues{{"matthews_corrcoef", 100.0}}));
  EXPECT_EQ(task.metric_fns()[2].name, "deduplicate_metric(squad)");
  EXPECT_EQ(task.metric_fns()[3].model_output_type(), ModelOutputType::score);
  const auto rouge = [&](size_t i) {
    return task.metric_fns()[i]({"walked"}, {"walking"}).at("rouge1");
  };
  EXPECT_EQ(rouge(4), MetricValue(0.0));
  EXPECT_EQ(rouge(5), MetricValue(100.0));  // one stem
  EXPECT_NE(rouge(6), MetricValue(0.0));    // bytes in common
}

}  // namespace
}  // namespace quintet::data
