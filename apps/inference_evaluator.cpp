#include "apps/inference_evaluator.h"

#include "apps/predictor.h"
#include "apps/train_loop.h"
#include "apps/whole_parameters.h"
#include "data/evaluation/json_logger.h"

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

std::optional<TaskMetrics> InferenceEvaluator::run(int64_t step,
                                                   const std::function<bool()>& stop) {
  const WholeParameters whole(model_->model->parameters());
  std::optional<Predictor> predictor;  // packs the parameters, so only where something is decoded
  data::ModelFns model;
  model.predict = [&](const data::Batch& batch) {
    if (!predictor) predictor.emplace(*model_);
    return best_predictions(*predictor, batch);
  };
  model.score = [&](const data::Batch& batch) {
    data::Scores scores = model_->model->score_batch(batch.features);
    scores.resize(static_cast<size_t>(batch.rows));
    return scores;
  };
  auto outputs = evaluator_.evaluate(model, stop);
  if (!outputs) return std::nullopt;
  outputs_ = std::move(*outputs);
  TaskMetrics metrics;
  for (const data::TaskOutputs& task : outputs_) {
    metrics[task.task->name()] = task.metrics;
    if (config_.json_logger && !config_.log_dir.empty())
      data::JsonLogger(config_.log_dir, config_.write_n_results).write(step, task);
  }
  return metrics;
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
                 config.json_logger = false;
                 for (const auto& logger : args.get<std::vector<gin::Callable>>("logger_cls"))
                   config.json_logger |= logger.name() == "seqio.loggers.JSONLogger";
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
