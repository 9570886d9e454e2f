#include "apps/evaluate/inference_evaluator.h"

#include <algorithm>

#include "apps/model/predictor.h"
#include "apps/model/whole_parameters.h"
#include "apps/train/train_loop.h"
#include "data/evaluation/json_logger.h"
#include "runtime/metrics/event_file.h"

namespace quintet {
namespace {

data::Predictions best_predictions(const Predictor& predictor, const data::Batch& batch) {
  const decoding::Decodes decodes = predictor.predict(batch.features);
  data::Predictions predictions;
  data::Answers& scores = predictions.aux_values["scores"];
  for (int64_t row = 0; row < batch.rows; ++row) {
    const auto tokens = decodes.best(row);
    predictions.tokens.emplace_back(tokens.begin(), tokens.end());
    scores.push_back(static_cast<double>(decodes.best_score(row)));
  }
  return predictions;
}

void write_event(EventFile& events, const std::string& tag, int64_t step,
                 const data::MetricValue& value) {
  if (const data::Text* text = value.text())
    events.text(tag, step, text->textdata);
  else if (const data::Histogram* histogram = value.histogram())
    events.histogram(tag, step, histogram->values, histogram->bins.value_or(30));
  else
    events.scalar(tag, step, value);
}

std::string log_text(const data::MetricValue& value) {
  if (const data::Text* text = value.text()) return text->textdata;
  return value.scalar() != nullptr ? fmt::format("{:.3f}", *value.scalar())
                                   : "a histogram, which only TensorBoard shows";
}

}  // namespace

InferenceEvaluator::InferenceEvaluator(const data::Provider& provider,
                                       const data::DatasetConfig& dataset,
                                       std::shared_ptr<const ConfiguredModel> model,
                                       InferenceEvaluatorConfig config)
    : model_(std::move(model)),
      config_(std::move(config)),
      evaluator_(
          provider, dataset, [this](const data::Lengths&) { return converter_for(*model_, {}); },
          config_.options) {}

std::optional<TaskMetrics> InferenceEvaluator::run(int64_t step, const std::function<bool()>& stop,
                                                   const Weights& weights) {
  const WholeParameters whole(model_->model->parameters());
  std::optional<Predictor> predictor;  // packs the parameters, so only where something is decoded
  data::ModelFns model;
  model.predict = [&](const data::Batch& batch) {
    if (!predictor) predictor.emplace(*model_, std::nullopt, weights);
    return best_predictions(*predictor, batch);
  };
  model.score = [&](const data::Batch& batch) {
    QT_CHECK(
        weights.type == WeightType::f32,
        "quintet eval: a metric of this task is made of scores, which are computed in float32, "
        "not with weights in {}; evaluate the run itself, without --quantize",
        name_of(weights.type));
    data::Scores scores = model_->model->score_tokens(batch.features).sums();
    scores.resize(static_cast<size_t>(batch.rows));
    return scores;
  };
  auto outputs = evaluator_.evaluate(model, stop);
  if (!outputs) return std::nullopt;
  outputs_ = std::move(*outputs);
  TaskMetrics metrics;
  for (const data::TaskOutputs& task : outputs_) {
    metrics[task.task->name()] = scalars_of(task.metrics);
    if (config_.json_logger && !config_.log_dir.empty())
      data::JsonLogger(config_.log_dir, config_.write_n_results).write(step, task);
  }
  return metrics;
}

void log_metrics(const InferenceEvaluatorConfig& config, int64_t step,
                 const std::vector<data::TaskOutputs>& outputs, Summaries& summaries,
                 const std::function<void(const std::string&)>& say) {
  for (const data::TaskOutputs& task : outputs) {
    const std::string run = "inference_eval/" + task.task->name().substr(0, 113);
    std::map<std::string, double> numbers;
    for (const auto& [name, number] : scalars_of(task.metrics)) numbers["eval/" + name] = number;
    summaries.log(run, step, numbers);
    EventFile* events = config.tensorboard_logger ? summaries.events(run) : nullptr;
    for (const auto& [name, value] : task.metrics) {
      if (events != nullptr) write_event(*events, "eval/" + name, step, value);
      if (config.pylogging_logger)
        say(fmt::format("{}/{} at step {}: {}", task.task->name(), name, step, log_text(value)));
    }
  }
}

void register_inference_evaluator(gin::Registry& registry) {
  const gin::Value none;
  registry.add("seqio.loggers.PyLoggingLogger", {{"output_dir", none}},
               [](const gin::Arguments&) -> gin::Value { return {}; });
  registry.add("seqio.loggers.TensorBoardLogger", {{"output_dir", none}},
               [](const gin::Arguments&) -> gin::Value { return {}; });
  registry.add("seqio.loggers.JSONLogger", {{"output_dir", none}, {"write_n_results", none}},
               [](const gin::Arguments&) -> gin::Value { return {}; });
  registry.add("seqio.evaluation.Evaluator",
               {{"logger_cls", gin::list_of({})},
                {"num_examples", none},
                {"use_memory_cache", true},
                {"async_compute_metrics", true},
                {"shuffle", false},
                {"target_field_name", "targets"},
                {"log_dir", none}},
               [](const gin::Arguments& args) -> gin::Value {
                 InferenceEvaluatorConfig config;
                 config.options.num_examples = args.get<std::optional<int64_t>>("num_examples");
                 config.options.shuffle = args.get<bool>("shuffle");
                 config.options.target_field_name = args.get<std::string>("target_field_name");
                 const auto loggers = args.get<std::vector<gin::Callable>>("logger_cls");
                 const auto asked = [&](const std::string& name) {
                   return std::any_of(loggers.begin(), loggers.end(), [&](const auto& logger) {
                     return logger.name() == "seqio.loggers." + name;
                   });
                 };
                 config.json_logger = asked("JSONLogger");
                 config.tensorboard_logger = asked("TensorBoardLogger");
                 config.pylogging_logger = asked("PyLoggingLogger");
                 config.write_n_results = args.config()
                                              .arguments("seqio.loggers.JSONLogger")
                                              .get<std::optional<int64_t>>("write_n_results");
                 return gin::to_value(config);
               });
  registry.add_alias("seqio.Evaluator", "seqio.evaluation.Evaluator");
  for (const char* name : {"PyLoggingLogger", "TensorBoardLogger", "JSONLogger"})
    registry.add_alias(std::string("seqio.") + name, std::string("seqio.loggers.") + name);
}

}  // namespace quintet
