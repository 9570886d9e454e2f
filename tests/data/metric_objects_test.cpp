// Metric objects: what seqio's Evaluator made of them (tests/oracles/gen_metric_objects.py), by the same Python in a worker process.
#include "data/evaluation/evaluator.h"
#include "data/evaluation/legacy_metric.h"
#include "data/metrics/postprocessors.h"
#include "data/metrics/t5_metrics.h"
#include "data/workers/worker_functions.h"
#include "runtime/base/formats/json.h"
#include "tests/data/gin_tasks.h"

namespace quintet::data {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::message_of;

const fs::path kFolder = fs::path(QUINTET_SOURCE_DIR) / "tests/data";

WorkersPtr python(const std::string& name) {
  return std::make_shared<const Workers>(
      WorkerOptions{.command = {"python3", (kFolder / "metric_objects.py").string(), name},
                    .processes = 1,
                    .refusal = ""});
}

class MetricObjects : public testing::GinTasks {
 protected:
  MetricObjects() : recorded_(Json::read(kFolder / "metric_objects.json")) {}

  MetricValues evaluate(const MetricObject& metric) {
    const auto vocabulary = std::make_shared<ByteVocabulary>();
    const std::vector<Json> rows = recorded_["rows"].items();
    const auto ids = [&](const std::string& text) {
      Tokens tokens = vocabulary->encode(text);
      tokens.push_back(1);
      return tokens;
    };
    const auto make = [&](int64_t i, Example& out) {
      const Json& row = rows[static_cast<size_t>(i)];
      for (const char* name : {"inputs", "targets"}) out.set(name, ids(row[name].as_string()));
      out.set("targets_pretokenized", row["targets"].as_string());
      out.set("note", row["note"].as_string());
    };
    const Task task(
        {.name = "t",
         .source = std::make_shared<FunctionDataSource>(
             "t", std::map<std::string, FunctionDataSource::Split>{{"validation",
                                                                    {std::ssize(rows), make}}}),
         .preprocessors = {},
         .output_features = {{"inputs", {vocabulary}}, {"targets", {vocabulary}}},
         .metric_objs = {metric}});
    const DatasetConfig dataset{.mixture_or_task_name = "t",
                                .task_feature_lengths = {},
                                .split = "validation",
                                .batch_size = 2};
    const Evaluator evaluator(task, dataset, [](const Lengths&) {
      return make_feature_converter("EncDecFeatureConverter", {.pack = false});
    });
    asked_.clear();
    int64_t predicted = 0, scored = 0;
    ModelFns model;
    model.predict = [&](const Batch& batch) {
      if (predicted == 0) asked_.emplace_back("prediction");
      Predictions made;
      for (int64_t i = 0; i < batch.rows; ++i) {
        const Json& row = rows[static_cast<size_t>(predicted++)];
        made.tokens.push_back(ids(row["prediction"].as_string()));
        made.aux_values["scores"].push_back(2 * row["score"].as_double());
      }
      return made;
    };
    model.score = [&](const Batch& batch) {
      if (scored == 0) asked_.emplace_back("score");
      Scores made;
      for (int64_t i = 0; i < batch.rows; ++i)
        made.push_back(rows[static_cast<size_t>(scored++)]["score"].as_double());
      return made;
    };
    return evaluator.evaluate(model, [] { return false; })->front().metrics;
  }
  MetricValues recorded(const std::string& name) const {
    MetricValues values;
    for (const auto& [metric, value] : recorded_["results"][name]["metrics"].members())
      values[metric] = value.as_double();
    return values;
  }

  Json recorded_;
  std::vector<std::string> asked_;  // of the model
};

TEST_F(MetricObjects, GiveWhatTheyGiveInSeqio) {
  const std::map<std::string, MetricObject> objects = {
      {"Overlap", process_metric_object(python("Overlap"), ModelOutputType::prediction, 0)},
      {"Collected", process_metric_object(python("Collected"), ModelOutputType::prediction, 0)},
      {"Lengths",
       process_metric_object(python("Lengths"), ModelOutputType::prediction_with_aux, 0)},
      {"Likelihood", process_metric_object(python("Likelihood"), ModelOutputType::score, 0)},
      {"passthrough", legacy_metric(metrics::sequence_accuracy())},
      {"passthrough_lower",
       legacy_metric(metrics::sequence_accuracy(), postprocessors::lower_text())},
      {"legacy_lower", legacy_metric(metrics::sequence_accuracy(), postprocessors::lower_text())}};
  EXPECT_EQ(recorded_["results"].size(), objects.size());
  for (const auto& [name, metric] : objects) {
    SCOPED_TRACE(name);
    EXPECT_EQ(evaluate(metric), recorded(name));
    EXPECT_EQ(asked_, std::vector<std::string>{name == "Likelihood" ? "score" : "prediction"});
  }
}

TEST_F(MetricObjects, MergeBatches) {
  EXPECT_EQ(evaluate(process_metric_object(python("Overlap"), ModelOutputType::prediction, 2)),
            recorded("Overlap"));
  EXPECT_TRUE(contains(message_of(ExitCode::kData,
                                  [&] {
                                    evaluate(process_metric_object(python("Collected"),
                                                                   ModelOutputType::prediction, 2));
                                  }),
                       "leave ProcessMetricObject.batch_size at 0"));
}

TEST_F(MetricObjects, OfAnotherOutputOfTheModelAreErrors) {
  const std::string said = message_of(ExitCode::kData, [&] {
    evaluate(process_metric_object(python("Overlap"), ModelOutputType::score, 0));
  });
  EXPECT_TRUE(contains(said,
                       "model_output_type of the metric is PREDICTION, that of "
                       "ProcessMetricObject SCORE"))
      << said;
}

TEST_F(MetricObjects, AreBoundInGin) {
  const auto task = [&](const std::string& objects) {
    return tasks_of(
        "import seqio\nfrom t5.evaluation import metrics\nfrom quintet import data\n"
        "seqio.Feature.vocabulary = @seqio.ByteVocabulary()\nseqio.Task.name = 't'\n"
        "seqio.Task.source = @quintet.data.NumberWordsDataSource()\n"
        "seqio.Task.preprocessors = []\n"
        "seqio.Task.output_features = {'targets': @seqio.Feature()}\n"
        "seqio.TaskRegistry.tasks = [@seqio.Task()]\n"
        "data.ProcessMetricObject.command = ['python3']\nseqio.Task.metric_objs = " +
        objects);
  };
  const TaskRegistry tasks = task(
      "[@seqio.metrics.PassthroughLegacyMetric.from_metric_fn(), @data.ProcessMetricObject]\n"
      "seqio.metrics.PassthroughLegacyMetric.from_metric_fn.metric_fn = @metrics.squad\n"
      "data.ProcessMetricObject.model_output_type = 'SCORE'\n");
  const Task& made = *tasks.get("t")->tasks().front();
  ASSERT_EQ(made.metric_objs().size(), 2u);
  EXPECT_TRUE(made.wants(ModelOutputType::prediction) && made.wants(ModelOutputType::score));
  EXPECT_FALSE(made.wants(ModelOutputType::prediction_with_aux));
  const std::string own = "[@data.ProcessMetricObject()]\ndata.ProcessMetricObject.";
  for (const auto& [text, want] : std::map<std::string, std::string>{
           {"[@metrics.squad]", "expected a metric object such as"},
           {own + "model_output_type = 'SCORE_WITH_INTERMEDIATES'",
            "gives no metric intermediates"},
           {own + "model_output_type = 'score'", "expected 'PREDICTION', 'SCORE' or"},
           {own + "batch_size = -1", "expected 0 or more, found -1"},
           {own + "format = 'tf_example'", "takes its examples as 'json'"}}) {
    const std::string said = message_of(ExitCode::kUsage, [&, text = text] { task(text); });
    EXPECT_TRUE(contains(said, want) && contains(said, "test.gin:")) << said;
  }
}

}  // namespace
}  // namespace quintet::data
