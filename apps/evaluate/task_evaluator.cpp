#include "apps/evaluate/task_evaluator.h"

#include <algorithm>

#include "apps/config/decoding_config.h"
#include "apps/input/run_data.h"
#include "apps/model/predictor.h"
#include "apps/model/replicated_parameters.h"
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

std::vector<std::string> first_of(std::vector<std::string> all, int64_t most) {
  all.resize(std::min(all.size(), static_cast<size_t>(most)));
  return all;
}

void write_event(EventFile& events, const std::string& tag, int64_t step,
                 const data::MetricValue& value) {
  if (const auto* text = value.get_if<data::Text>())
    events.text(tag, step, text->textdata);
  else if (const auto* histogram = value.get_if<data::Histogram>())
    events.histogram(tag, step, histogram->values, histogram->bins.value_or(30));
  else if (const auto* image = value.get_if<data::Image>())
    events.images(tag, step, image->width, image->height,
                  first_of(image->pictures, image->max_outputs));
  else if (const auto* audio = value.get_if<data::Audio>())
    events.audio(tag, step, first_of(audio->clips, audio->max_outputs));
  else if (const auto* generic = value.get_if<data::Generic>())
    events.tensor(tag, step, {generic->plugin_name, generic->plugin_content}, generic->tensor.shape,
                  generic->tensor.values);
  else
    events.scalar(tag, step, value);
}

std::string log_text(const data::MetricValue& value) {
  if (const auto* text = value.get_if<data::Text>()) return text->textdata;
  return value.scalar() != nullptr
             ? fmt::format("{:.3f}", *value.scalar())
             : fmt::format("a value of kind {}, which TensorBoard shows", value.kind());
}

bool any_metric_wants(const data::Evaluator& evaluator, data::ModelOutputType type) {
  const auto tasks = evaluator.tasks();
  return std::any_of(tasks.begin(), tasks.end(),
                     [&](const data::Task* task) { return task->wants(type); });
}

}  // namespace

TaskEvaluator::TaskEvaluator(const data::Provider& provider, const data::DatasetConfig& dataset,
                             std::shared_ptr<const ConfiguredModel> model, EvaluatorConfig config)
    : model_(std::move(model)),
      config_(std::move(config)),
      evaluator_(
          provider, dataset, [this](const data::Lengths&) { return converter_for(*model_, {}); },
          config_.options),
      decodes_(any_metric_wants(evaluator_, data::ModelOutputType::prediction) ||
               any_metric_wants(evaluator_, data::ModelOutputType::prediction_with_aux)),
      scores_(any_metric_wants(evaluator_, data::ModelOutputType::score)) {
  configured_decode_fn(*model_, model_->model->spec().decoder_only());  // a wrong one, told at once
}

std::optional<TaskMetrics> TaskEvaluator::run(int64_t step, const std::function<bool()>& stop,
                                              const Weights& weights, CacheType cache_type) {
  QT_CHECK(decodes_ || cache_type == CacheType::native,
           "quintet eval: --kv_cache_dtype={}: no metric of this task is made of predictions, and "
           "scores of given targets read no cache; leave the flag out",
           name_of(cache_type));
  std::optional<ReplicatedParameters> replicated;
  if (!Device::current().is_cpu() && weights.ranks == nullptr)
    replicated.emplace(model_->model->parameters());
  std::optional<Predictor> predictor;  // packs the parameters, which all ranks do together
  if (decodes_ || scores_) predictor.emplace(*model_, DecodeFlags{}, weights, cache_type);
  data::ModelFns model;
  model.predict = [&](const data::Batch& batch) { return best_predictions(*predictor, batch); };
  model.score = [&](const data::Batch& batch) {
    QT_CHECK(
        weights.type == WeightType::f32,
        "quintet eval: a metric of this task is made of scores, which are computed in float32, "
        "not with weights in {}; evaluate the run itself, without --quantize",
        name_of(weights.type));
    data::Scores scores = predictor->score(batch.features).sums();
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

void log_metrics(const EvaluatorConfig& config, int64_t step,
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

}  // namespace quintet
