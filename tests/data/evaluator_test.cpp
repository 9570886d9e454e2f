// seqio's Evaluator and JSON files, with functions in place of a model.
#include "data/evaluation/evaluator.h"

#include <barrier>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "data/evaluation/json_logger.h"
#include "data/metrics/t5_metrics.h"
#include "runtime/base/formats/json.h"
#include "tests/data/files.h"

namespace quintet::data {
namespace {

using testing::contains;
using testing::message_of;

/// Reads and answers by bytes: "a" has the id 100.
Tokens ids(const std::string& text) { return ByteVocabulary().encode(text); }
bool never() { return false; }

class EvaluatorTest : public testing::FileTest {
 protected:
  /// Examples with a text feature "targets_pretokenized" (that may be left out) and token features.
  struct Row {
    std::string input, target;
    std::vector<Example::Item> more = {};
  };
  ProviderPtr task(const std::string& name, std::vector<Row> rows, std::vector<MetricFn> metrics,
                   PostprocessFn postprocess = {}, const std::string& split = "validation") {
    const auto make = [rows](int64_t i, Example& out) {
      const Row& row = rows[static_cast<size_t>(i)];
      out.set("inputs", ids(row.input));
      out.set("targets", ids(row.target));
      for (const auto& [feature, value] : row.more) out.set(feature, value);
    };
    const auto vocabulary = std::make_shared<ByteVocabulary>();
    return std::make_shared<Task>(
        Task::Config{.name = name,
                     .source = std::make_shared<FunctionDataSource>(
                         name,
                         std::map<std::string, FunctionDataSource::Split>{
                             {split, {static_cast<int64_t>(rows.size()), make}}}),
                     .preprocessors = {},
                     .output_features = {{"inputs", {vocabulary}}, {"targets", {vocabulary}}},
                     .metric_fns = std::move(metrics),
                     .postprocess_fn = std::move(postprocess)});
  }
  std::unique_ptr<Evaluator> evaluator(const Provider& provider,
                                       const EvaluatorOptions& options = {},
                                       const Lengths& lengths = {}) {
    const DatasetConfig dataset{.mixture_or_task_name = provider.name(),
                                .task_feature_lengths = lengths,
                                .split = "validation",
                                .batch_size = 2};
    return std::make_unique<Evaluator>(
        provider, dataset,
        [this](const Lengths& used) {
          lengths_ = {used.begin(), used.end()};
          return make_feature_converter("EncDecFeatureConverter", {.pack = false});
        },
        options);
  }
  /// Predicts the inputs themselves and scores by their first byte.
  ModelFns echo() {
    const auto row_of = [](const Batch& batch, int64_t row) {
      const HostArray& array = batch.features.at("encoder_input_tokens");
      const auto length = array.shape[1];
      const auto* all = reinterpret_cast<const int32_t*>(array.bytes.data()) + row * length;
      return Tokens(all, all + length);
    };
    ModelFns model;
    model.predict = [this, row_of](const Batch& batch) {
      ++predict_calls_;
      Predictions predictions;
      for (int64_t row = 0; row < batch.rows; ++row) {
        predictions.tokens.push_back(row_of(batch, row));
        predictions.aux_values["scores"].push_back(-0.5 * predictions.tokens.back()[0]);
      }
      return predictions;
    };
    model.score = [this, row_of](const Batch& batch) {
      ++score_calls_;
      Scores scores;
      for (int64_t row = 0; row < batch.rows; ++row) scores.push_back(row_of(batch, row)[0]);
      return scores;
    };
    return model;
  }
  std::vector<Json> lines(const std::string& name) { return Json::read_lines(folder_ / name); }

  std::map<std::string, int64_t> lengths_;
  int predict_calls_ = 0, score_calls_ = 0;
};

TEST_F(EvaluatorTest, ComparesPredictionsInTheOrderOfTheExamples) {
  const auto provider = task("echo", {{"a", "a"}, {"b", "x"}, {"cde", "cde"}},
                             {metrics::sequence_accuracy(), metrics::edit_distance()});
  const auto judge = evaluator(*provider);
  const auto outputs = judge->evaluate(echo(), never);
  ASSERT_TRUE(outputs && outputs->size() == 1);
  const TaskOutputs& got = outputs->front();
  EXPECT_EQ(got.outputs, (std::vector<std::string>{"a", "b", "cde"}));
  EXPECT_EQ(*got.targets, (Answers{"a", "x", "cde"}));
  EXPECT_NEAR(got.metrics.at("sequence_accuracy"), 200.0 / 3, 1e-9);
  EXPECT_EQ(got.metrics.at("sum_edit"), 1);
  EXPECT_TRUE(got.scores.empty() && got.aux_values.empty());
  EXPECT_EQ(score_calls_, 0);
}

TEST_F(EvaluatorTest, AsksTheModelOnlyForWhatMetricsWant) {
  const MetricFn mean{"mean", ScoreMetric([](const Answers&, const Scores& scores) -> MetricValues {
                        return {{"mean", std::accumulate(scores.begin(), scores.end(), 0.0) /
                                             static_cast<double>(scores.size())}};
                      })};
  const MetricFn with_aux{
      "with_aux", PredictWithAuxMetric([](const Answers& targets, const Answers& predictions,
                                          const AuxValues& aux) -> MetricValues {
        return {{"equal", targets == predictions}, {"last", aux.at("scores").back().number()}};
      })};
  const std::vector<Row> rows = {{"a", "a"}, {"b", "b"}, {"c", "c"}};
  const auto scored = evaluator(*task("scored", rows, {mean}))->evaluate(echo(), never);
  EXPECT_EQ(predict_calls_, 0);
  EXPECT_EQ(score_calls_, 2);
  EXPECT_EQ(scored->front().metrics, (MetricValues{{"mean", 101.0}}));
  EXPECT_TRUE(scored->front().predictions.empty());

  const auto both = evaluator(*task("both", rows, {mean, with_aux}))->evaluate(echo(), never);
  EXPECT_EQ(predict_calls_, 2);
  EXPECT_EQ(both->front().metrics, (MetricValues{{"equal", 1}, {"last", -51.0}, {"mean", 101.0}}));
}

TEST_F(EvaluatorTest, PeersShareTheBatchesAndAllHaveTheResults) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const MetricFn scored{"scored",
                        ScoreMetric([](const Answers&, const Scores& scores) -> MetricValues {
                          return {{"last", scores.back()}};
                        })};
  const MetricFn aux{"aux", PredictWithAuxMetric([](const Answers&, const Answers& predictions,
                                                    const AuxValues& values) -> MetricValues {
                       return {{"all", Text{to_string(Answer(predictions)) +
                                            to_string(Answer(values.at("kept")))}}};
                     })};
  std::vector<Row> rows;
  for (char c = 'a'; c < 'l'; ++c) rows.push_back({std::string(1, c), "t"});  // six batches of two
  const auto provider = task("shared", rows, {scored, aux});
  const auto run = [&](Peers peers, int& batches) {
    EvaluatorOptions options;
    options.peers = std::move(peers);
    const auto judge = std::make_unique<Evaluator>(
        *provider,
        DatasetConfig{.mixture_or_task_name = "shared",
                      .task_feature_lengths = {},
                      .split = "validation",
                      .batch_size = 2},
        [](const Lengths&) { return make_feature_converter("EncDecFeatureConverter", {}); },
        options);
    ModelFns model;
    model.predict = [&](const Batch& batch) {
      ++batches;
      Predictions made;
      for (int64_t row = 0; row < batch.rows; ++row) {
        const int32_t id = batch.features.at("encoder_input_tokens").as<int32_t>()[row];
        made.tokens.push_back({id});
        made.aux_values["kept"].push_back(
            Fields{{"bytes", std::string("\xFF\x00", 2)}, {"list", Answers{id, 0.1 * id, "x"}}});
      }
      return made;
    };
    model.score = [&](const Batch& batch) {
      Scores scores(static_cast<size_t>(batch.rows), nan);
      if (batch.rows == 1) scores[0] = 0.1;  // the last one
      return scores;
    };
    return judge->evaluate(model, never)->front();
  };
  int alone = 0;
  const TaskOutputs want = run({}, alone);
  constexpr int kPeers = 4;
  std::barrier meet(kPeers);
  std::vector<std::string> texts(kPeers);
  std::vector<int> batches(kPeers);
  std::vector<TaskOutputs> got(kPeers);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kPeers; ++rank)
    threads.emplace_back([&, rank] {
      const auto gather = [&, rank](const std::string& text) {
        texts[rank] = text;
        meet.arrive_and_wait();
        return texts;
      };
      got[rank] = run({rank, kPeers, gather}, batches[rank]);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(alone, 6);
  EXPECT_EQ(batches, (std::vector<int>{2, 2, 1, 1}));
  for (const TaskOutputs& outputs : got) {
    EXPECT_EQ(outputs.metrics, want.metrics);
    EXPECT_EQ(outputs.outputs, want.outputs);
    EXPECT_EQ(outputs.predictions, want.predictions);
    EXPECT_EQ(outputs.aux_values, want.aux_values);
    EXPECT_TRUE(std::isnan(outputs.scores.front()) && outputs.scores.back() == 0.1);
  }
}

TEST_F(EvaluatorTest, ValuesOfAnyKindAreMetricsToo) {
  const MetricFn shown{"shown", PredictMetric([](const Answers&, const Answers&) -> MetricValues {
                         return {{"number", 0.5},
                                 {"text", Text{"# a"}},
                                 {"spread", Histogram{{1, 2}, 3}},
                                 {"grid", Generic{{{2, 1}, {0.5, 2}}, "mine", ""}}};
                       })};
  const auto provider = task("values", {{"a", "a"}}, {shown});
  const auto judge = evaluator(*provider);
  const auto outputs = judge->evaluate(echo(), never);
  const MetricValues& got = outputs->front().metrics;
  EXPECT_EQ(*got.at("text").get_if<Text>(), Text{"# a"});
  EXPECT_EQ(got.at("spread").get_if<Histogram>()->values.size(), 2u);
  EXPECT_EQ(scalars_of(got), (std::map<std::string, double>{{"number", 0.5}}));
  message_of(ExitCode::kUsage, [&] { (void)static_cast<double>(got.at("text")); });
  // As seqio's JSONLogger: histograms, images and audio are left out.
  JsonLogger(folder_, 0).write(7, outputs->front());
  const auto records = lines("values-metrics.jsonl");
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].raw().dump(),
            R"({"step":7,"grid":[[0.5],[2.0]],"number":0.5,"text":"# a"})");
}

TEST_F(EvaluatorTest, PostprocessesTargetsOnceWithTheirExample) {
  int targets = 0;
  const auto provider = task(
      "labels", {{"yes", "no", {{"label", int64_t{1}}}}, {"no", "no", {{"label", int64_t{0}}}}},
      {metrics::accuracy()}, [&](const Answer& decoded, const Example& example, bool is_target) {
        targets += is_target;
        return is_target ? Answer(std::get<int64_t>(example.at("label")))
                         : Answer(int64_t{decoded.text() == "yes"});
      });
  const auto judge = evaluator(*provider);
  for (int run = 0; run < 2; ++run)
    EXPECT_EQ(judge->evaluate(echo(), never)->front().metrics, (MetricValues{{"accuracy", 100.0}}));
  EXPECT_EQ(targets, 2);
}

TEST_F(EvaluatorTest, MeasuresLengthsOverAllTasksWhereNoneAreGiven) {
  const MetricFn accuracy = metrics::accuracy();
  const Mixture mixture("mix", {{task("one", {{"abc", "d"}}, {accuracy}), 1.0},
                                {task("two", {{"a", "defgh"}}, {accuracy}), 1.0}});
  EXPECT_EQ(evaluator(mixture)->evaluate(echo(), never)->size(), 2u);
  EXPECT_EQ(lengths_, (std::map<std::string, int64_t>{{"inputs", 3}, {"targets", 5}}));
  evaluator(mixture, {}, {{"targets", 9}});
  EXPECT_EQ(lengths_, (std::map<std::string, int64_t>{{"inputs", 3}, {"targets", 9}}));
}

TEST_F(EvaluatorTest, TakesTheFirstExamplesAndAnotherTargetField) {
  const auto provider = task("t", {{"a", "b"}, {"c", "d"}, {"e", "f"}}, {metrics::accuracy()});
  const auto of_some = evaluator(*provider, {.num_examples = 2});
  const auto some = of_some->evaluate(echo(), never);
  EXPECT_EQ(*some->front().targets, (Answers{"b", "d"}));
  const auto inputs =
      evaluator(*provider, {.target_field_name = "inputs"})->evaluate(echo(), never);
  EXPECT_EQ(inputs->front().metrics, (MetricValues{{"accuracy", 100.0}}));
  const std::string message =
      message_of(ExitCode::kUsage, [&] { evaluator(*provider, {.target_field_name = "labels"}); });
  EXPECT_TRUE(contains(message, "no feature 'labels'")) << message;
}

TEST_F(EvaluatorTest, LeavesOutTasksWithoutTheSplitOrAMetric) {
  const MetricFn accuracy = metrics::accuracy();
  const std::vector<Row> rows = {{"a", "a"}};
  const Mixture mixture("mix", {{task("judged", rows, {accuracy}), 1.0},
                                {task("no_metric", rows, {}), 1.0},
                                {task("no_split", rows, {accuracy}, {}, "test"), 1.0}});
  const auto judge = evaluator(mixture);
  ASSERT_EQ(judge->tasks().size(), 1u);
  EXPECT_EQ(judge->tasks()[0]->name(), "judged");
  EXPECT_TRUE(evaluator(*task("none", rows, {}))->evaluate(echo(), never)->empty());
}

TEST_F(EvaluatorTest, ErrorsNameTheTask) {
  const std::vector<Row> rows = {{"a", "a"}};
  const auto twice = task("twice", rows, {metrics::accuracy(), metrics::accuracy()});
  const std::string same =
      message_of(ExitCode::kUsage, [&] { evaluator(*twice)->evaluate(echo(), never); });
  EXPECT_TRUE(contains(same, "'twice'") && contains(same, "'accuracy'")) << same;
  const auto unjudged = task("unjudged", rows, {metrics::squad()});
  const std::string type =
      message_of(ExitCode::kData, [&] { evaluator(*unjudged)->evaluate(echo(), never); });
  EXPECT_TRUE(contains(type, "evaluation of task 'unjudged': squad: target 0")) << type;
  const auto scored = task("scored", {{"a", "a", {{"y", int64_t{1}}}}}, {metrics::score_auc()},
                           [](const Answer&, const Example& example, bool) {
                             return Answer(std::get<int64_t>(example.at("y")));
                           });
  ModelFns nan;
  nan.score = [](const Batch&) { return Scores{std::nan("")}; };
  const std::string message =
      message_of(ExitCode::kData, [&] { evaluator(*scored)->evaluate(nan, never); });
  EXPECT_TRUE(contains(message, "'scored'") && contains(message, "score 0 is NaN")) << message;
  const DatasetConfig packed{.mixture_or_task_name = "twice",
                             .task_feature_lengths = {},
                             .split = "validation",
                             .batch_size = 2,
                             .pack = true};
  EXPECT_TRUE(
      contains(message_of(ExitCode::kUsage, [&] { Evaluator(*twice, packed, {}); }), "packed"));
}

TEST_F(EvaluatorTest, StopsBetweenBatches) {
  const auto provider = task("t", {{"a", "a"}, {"b", "b"}, {"c", "c"}}, {metrics::accuracy()});
  const auto judge = evaluator(*provider);
  EXPECT_FALSE(judge->evaluate(echo(), [this] { return predict_calls_ == 1; }).has_value());
  EXPECT_EQ(predict_calls_, 1);
}

TEST_F(EvaluatorTest, WritesSeqiosFiles) {
  Tokens most(32), too_many(40);
  std::iota(most.begin(), most.end(), 0);
  std::iota(too_many.begin(), too_many.end(), 1);
  const MetricFn with_aux{"aux", PredictWithAuxMetric([](const Answers&, const Answers&,
                                                         const AuxValues&) -> MetricValues {
                            return {{"undefined", std::nan("")}};
                          })};
  const MetricFn scored{"scored", ScoreMetric([](const Answers&, const Scores&) -> MetricValues {
                          return {{"half", 0.5}};
                        })};
  const auto provider = task("a/task",
                             {{"a",
                               "b",
                               {{"targets_pretokenized", "B"},
                                {"most", most},
                                {"too_many", too_many},
                                {"floats", std::vector<double>(33, 0.5)},
                                {"grid", NdArray<int32_t>{{2, 3}, {1, 2, 3, 4, 5, 6}}},
                                {"large_grid", NdArray<int32_t>{{8, 5}, too_many}},
                                {"names", std::vector<std::string>{"x", "\xFF"}},
                                {"image", "\xFF\xD8"},
                                {"id", int64_t{7}}}},
                              {"c", "c"}},
                             {with_aux, scored});
  const auto judge = evaluator(*provider);
  const auto outputs = judge->evaluate(echo(), never);
  const JsonLogger logger(folder_);
  for (const int64_t step : {100, 200, 300, 200}) logger.write(step, outputs->front());

  const auto metrics = lines("a_task-metrics.jsonl");
  ASSERT_EQ(metrics.size(), 2u);  // the second 200 replaced what came after 100
  EXPECT_EQ(metrics[1].raw().dump(), R"({"step":200,"half":0.5,"undefined":"NaN"})");
  const auto results = lines("a_task-000200.jsonl");
  ASSERT_EQ(results.size(), 2u);
  const Json input = results[0]["input"];
  EXPECT_EQ(input["targets"].as_ints(), (std::vector<int64_t>{101}));
  EXPECT_EQ(input["targets_pretokenized"].as_string(), "B");
  EXPECT_EQ(input["most"].size(), 32u);
  EXPECT_EQ(input["too_many"].as_string(),
            "ndarray(shape=(40,), dtype=int32); summary: 1, 2, 3, 4, 5 ... 36, 37, 38, 39, 40");
  EXPECT_EQ(
      input["floats"].as_string(),
      "ndarray(shape=(33,), dtype=float32); summary: 0.5, 0.5, 0.5, 0.5, 0.5 ... 0.5, 0.5, 0.5, "
      "0.5, 0.5");
  EXPECT_EQ(input["grid"].raw().dump(), "[[1,2,3],[4,5,6]]");
  EXPECT_EQ(input["large_grid"].as_string(),
            "ndarray(shape=(8, 5), dtype=int32); summary: 1, 2, 3, 4, 5 ... 36, 37, 38, 39, 40");
  EXPECT_EQ(input["names"].as_strings(), (std::vector<std::string>{"x", "/w=="}));
  EXPECT_EQ(input["image"].as_string(), "/9g=");
  EXPECT_EQ(input["id"].as_int(), 7);
  EXPECT_EQ(results[0]["target"].as_string(), "B");
  EXPECT_EQ(results[0]["score"].as_double(), 100);
  EXPECT_EQ(results[0]["output"].as_string(), "a");
  EXPECT_EQ(results[0]["prediction"].as_string(), "a");
  EXPECT_EQ(results[0]["aux_scores"].as_double(), -50);
  EXPECT_EQ(results[1]["target"].as_string(), "c");

  JsonLogger(folder_, 1).write(7, outputs->front());
  EXPECT_EQ(lines("a_task-000007.jsonl").size(), 1u);
  JsonLogger(folder_, 0).write(8, outputs->front());
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a_task-000008.jsonl"));
  EXPECT_EQ(lines("a_task-metrics.jsonl").size(), 2u);
}

}  // namespace
}  // namespace quintet::data
