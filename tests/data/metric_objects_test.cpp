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

WorkersPtr workers_of(std::vector<std::string> command) {
  return std::make_shared<const Workers>(
      WorkerOptions{.command = std::move(command), .processes = 1, .refusal = ""});
}

using Command = std::vector<std::string>;
/// Without site packages: never with NumPy.
const Command kPlainPython = {"python3", "-I", "-S"};

WorkersPtr python(const std::string& name, Command command = kPlainPython) {
  command.insert(command.end(), {(kFolder / "metric_objects.py").string(), name});
  return workers_of(std::move(command));
}

/// $QUINTET_PYTHON, python3, or Debian's own, if it has NumPy.
std::optional<Command> python_with_numpy() {
  const char* named = std::getenv("QUINTET_PYTHON");
  for (const std::string program :
       {named != nullptr ? named : "python3", "python3", "/usr/bin/python3"})
    if (std::system((program + " -c 'import numpy' 2>/dev/null").c_str()) == 0)
      return Command{program};
  return std::nullopt;
}

class MetricObjects : public testing::GinTasks {
 protected:
  MetricObjects() : recorded_(Json::read(kFolder / "metric_objects.json")) {}

  MetricValues evaluate(std::vector<MetricObject> metrics) {
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
         .metric_objs = std::move(metrics)});
    const DatasetConfig dataset{
        .mixture_or_task_name = "t",
        .task_feature_lengths = {{"targets", recorded_["target_length"].as_int()}},
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
        const bool empty = row["prediction"].as_string().empty();
        made.aux_values["scores"].push_back(empty ? -std::numeric_limits<double>::infinity()
                                                  : 2 * row["score"].as_double());
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
  MetricValues evaluate(const MetricObject& metric) { return evaluate(std::vector{metric}); }
  static MetricValues values_of(const Json& json) {
    MetricValues values;
    for (const auto& [metric, value] : json.members()) values[metric] = value.as_double();
    return values;
  }
  MetricValues recorded(const std::string& name) const {
    return values_of(recorded_["results"][name]["metrics"]);
  }
  /// By a shell that answers so, whatever it is told, and then with no metrics.
  std::string said_of(const std::string& answer) {
    return message_of(ExitCode::kData, [&] {
      evaluate(process_metric_object(
          workers_of({"sh", "-c",
                      "read line; echo '" + answer + R"('; read line; echo '{"metrics": {}}')"}),
          ModelOutputType::prediction, 0));
    });
  }
  /// What seqio's Evaluator made of them, by this Python.
  void compare_all(const Command& command) {
    const auto process = [&](const std::string& name, ModelOutputType type) {
      return process_metric_object(python(name, command), type, 0);
    };
    std::map<std::string, MetricObject> objects = {
        {"Overlap", process("Overlap", ModelOutputType::prediction)},
        {"Collected", process("Collected", ModelOutputType::prediction)},
        {"Lengths", process("Lengths", ModelOutputType::prediction_with_aux)},
        {"Likelihood", process("Likelihood", ModelOutputType::score)}};
    if (command != kPlainPython)
      objects.emplace("Arrays", process("Arrays", ModelOutputType::prediction));
    for (const auto& [name, metric] : objects) {
      SCOPED_TRACE(name);
      EXPECT_EQ(evaluate(metric), recorded(name));
      EXPECT_EQ(asked_, std::vector<std::string>{name == "Likelihood" ? "score" : "prediction"});
    }
  }

  Json recorded_;
  std::vector<std::string> asked_;  // of the model
};

TEST_F(MetricObjects, GiveWhatTheyGiveInSeqio) { compare_all(kPlainPython); }

TEST_F(MetricObjects, GetArraysOfNumPy) {
  const auto command = python_with_numpy();
  if (!command) GTEST_SKIP() << "no Python with NumPy (QUINTET_PYTHON names another)";
  compare_all(*command);
}

TEST_F(MetricObjects, ThatNeedNumPySaySo) {
  const std::string said = message_of(ExitCode::kData, [&] {
    evaluate(process_metric_object(python("Arrays"), ModelOutputType::prediction, 0));
  });
  EXPECT_TRUE(contains(said, "'list' object has no attribute 'dtype' (arrays are lists, since"))
      << said;
}

TEST_F(MetricObjects, OfFunctionsGiveWhatTheyGiveInSeqio) {
  const auto lower = postprocessors::lower_text();
  EXPECT_EQ(evaluate(legacy_metric(metrics::sequence_accuracy())), recorded("passthrough"));
  for (const char* name : {"passthrough_lower", "legacy_lower"})
    EXPECT_EQ(evaluate(legacy_metric(metrics::sequence_accuracy(), lower)), recorded(name));
}

TEST_F(MetricObjects, CompareTargetsOfTheirOwnPostprocessor) {
  const MetricFn lowered{
      "lowered_accuracy", PredictMetric([](const Answers& targets, const Answers& predictions) {
        const MetricValues values = metrics::sequence_accuracy()(targets, predictions);
        return MetricValues{{"lowered_accuracy", values.begin()->second}};
      })};
  const MetricValues own = evaluate({legacy_metric(metrics::sequence_accuracy()),
                                     legacy_metric(lowered, postprocessors::lower_text())});
  EXPECT_EQ(own, (MetricValues{{"sequence_accuracy", 20.0}, {"lowered_accuracy", 60.0}}));
  // In seqio the second has the targets of the first, which nothing lowered.
  EXPECT_EQ(values_of(recorded_["two"]),
            (MetricValues{{"sequence_accuracy", 20.0}, {"lowered_accuracy", 0.0}}));
}

TEST_F(MetricObjects, AreSentWhatTheyAskFor) {
  for (const char* key : {"predictions", "aux_values", "scores"}) {
    const std::string answers = R"(
read request; echo '{"examples": [0, 1]}'; read told
case "$told" in *'"'$0'"'*) echo '{"metrics": {"has": 1}}';; *) echo '{"metrics": {"has": 0}}';; esac)";
    for (const ModelOutputType type : {ModelOutputType::prediction, ModelOutputType::score,
                                       ModelOutputType::prediction_with_aux}) {
      // Beside one that has the model asked for everything.
      const MetricObject all{"all", ModelOutputType::prediction_with_aux,
                             [](const ModelOutput&) { return MetricValues{}; }};
      const MetricObject scores{"scores", ModelOutputType::score, all.compute};
      const MetricValues got = evaluate(
          {all, scores, process_metric_object(workers_of({"sh", "-c", answers, key}), type, 0)});
      const bool predicted = type != ModelOutputType::score;
      const std::map<std::string, bool> has = {
          {"predictions", predicted},
          {"aux_values", type == ModelOutputType::prediction_with_aux},
          {"scores", type != ModelOutputType::prediction}};  // the model's auxiliary value, too
      EXPECT_EQ(got.at("has"), has.at(key) ? 1.0 : 0.0) << key;
    }
  }
}

TEST_F(MetricObjects, OfWrongAnswersAreErrors) {
  const std::string none = said_of(R"({"metric": {}})");
  EXPECT_TRUE(contains(none, "expected metrics, examples, decode or encode")) << none;
  const std::string wide = said_of(R"({"decode": [[4294967301]], "feature": "targets"})");
  EXPECT_TRUE(contains(wide, "4294967301 is no id of 32 bits")) << wide;
}

TEST_F(MetricObjects, MergeBatches) {
  EXPECT_EQ(evaluate(process_metric_object(python("Overlap"), ModelOutputType::prediction, 2)),
            recorded("Overlap"));
  // Takes no mask.
  EXPECT_EQ(evaluate(process_metric_object(python("Likelihood"), ModelOutputType::score, 2)),
            recorded("Likelihood"));
  const ModelOutput empty{
      {}, {{"targets", {std::make_shared<ByteVocabulary>()}}}, "targets", {}, {}, {}, {}, 0};
  EXPECT_EQ(process_metric_object(python("Overlap"), ModelOutputType::prediction, 2).compute(empty),
            (MetricValues{{"overlap", 0.0}, {"examples", 0.0}}));
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
