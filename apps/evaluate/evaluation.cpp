#include "apps/evaluate/evaluation.h"

#include <nlohmann/json.hpp>

#include "apps/evaluate/evaluation_log.h"
#include "apps/evaluate/loss_evaluator.h"
#include "apps/evaluate/task_evaluator.h"
#include "apps/input/run_vocabularies.h"
#include "apps/model/checkpoint_parameters.h"
#include "apps/model/model_info.h"
#include "apps/model/restored_checkpoint.h"
#include "apps/process/output.h"
#include "apps/process/signals.h"
#include "checkpoint/open/open_checkpoint.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/json.h"
#include "runtime/metrics/summaries.h"

namespace quintet {
namespace {

void print_samples(const data::TaskOutputs& outputs, int64_t samples) {
  const auto count = static_cast<int64_t>(outputs.predictions.size());
  const int64_t shown = std::min(samples, count);
  const data::Task& task = *outputs.task;
  for (int64_t k = 0; k < shown; ++k) {
    const auto i = static_cast<size_t>(k * count / shown);  // evenly spread over the set
    const data::Answer& target = (*outputs.targets)[i];
    const bool right = outputs.predictions[i] == target;
    fmt::print(stderr, "  {}  {}: {}  ->  {}{}\n", right ? "right" : "WRONG", task.name(),
               data::feature_text((*outputs.examples)[i], task.output_features(), "inputs"),
               to_string(outputs.predictions[i]),
               right ? "" : "   (expected " + to_string(target) + ")");
  }
}

void print_metrics(int64_t step, const std::string& task, size_t examples,
                   const data::MetricValues& metrics) {
  nlohmann::ordered_json json = {{"step", step}, {"task", task}, {"examples", examples}};
  for (const auto& [name, value] : scalars_of(metrics)) json[name] = json_number(value);
  fmt::print("{}\n", json.dump());
}

struct Loaded {
  std::shared_ptr<const CheckpointReader> checkpoint;
  Weights weights;
};

/// Nothing if the run that trains the model deleted the checkpoint while others were evaluated.
std::optional<Loaded> load(const EvaluationConfig& config, const std::filesystem::path& folder,
                           const data::VocabularyRecords& vocabularies) {
  try {
    Loaded loaded{open_checkpoint(folder), {}};
    loaded.checkpoint->verify_before_reading();
    check_recorded(*loaded.checkpoint, vocabularies);
    BaseModel& model = *config.model->model;
    loaded.checkpoint = restored(loaded.checkpoint, config.restore, shapes_of(model.parameters()));
    loaded.weights = weights_of(config.weights, loaded.checkpoint);
    const std::optional<int64_t> seed = config.restore.fallback_seed;
    fmt::print(stderr, "{}",
               initialized_text(load_for(loaded.weights, *loaded.checkpoint, model, seed)));
    return loaded;
  } catch (const Error&) {
    if (config.restore.mode != "all" || is_there(folder)) throw;
    fmt::print(stderr, "{} was deleted meanwhile\n", folder.string());
    return std::nullopt;
  }
}

/// What T5X's training_evaluator_cls asks for; nothing if it is None.
std::optional<LossEvaluator> loss_evaluator_of(const EvaluationConfig& config,
                                               const data::Provider& provider) {
  if (config.train_eval_steps == 0) return std::nullopt;
  constexpr int64_t kDevices = 1;
  return LossEvaluator(provider, config.dataset,
                       converter_for(*config.model, data::converter_options(config.dataset)), {},
                       config.train_eval_steps, kDevices,
                       [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
}

/// Teacher-forced losses, to stdout and as training does. False if asked to stop.
bool evaluate_losses(const LossEvaluator& evaluator, const BaseModel& model, const Loaded& loaded,
                     const std::function<bool()>& stop, Summaries& summaries) {
  QT_CHECK(loaded.weights.type == WeightType::f32,
           "eval_script.evaluate.training_evaluator_cls: losses are computed in float32 alone; "
           "bind None, or leave --quantize");
  const int64_t step = loaded.checkpoint->step();
  const auto metrics = evaluator.run(model, stop);
  if (!metrics) return false;
  for (const auto& [task, values] : *metrics) {
    summaries.write("training_eval/" + task.substr(0, 113), step, values);
    nlohmann::ordered_json json = {{"step", step}, {"training_eval", task}};
    for (const auto& [name, value] : values)
      if (!name.starts_with("timing/")) json[name] = json_number(value);
    fmt::print("{}\n", json.dump());
  }
  return true;
}

}  // namespace

int run_evaluation(EvaluationConfig config, const ProviderOf& provider_of, int64_t samples) {
  StopRequests stop({});
  const auto asked = [&] { return stop.reason().has_value(); };
  const data::ProviderPtr provider = provider_of(config.dataset);
  std::unique_ptr<Summaries> summaries = Summaries::none();
  if (!config.output_dir.empty()) {
    summaries = std::make_unique<Summaries>(config.output_dir, int64_t{1} << 60);
    config.evaluator.log_dir = config.output_dir / "inference_eval";
  }
  check_ids(*config.model, *provider, config.dataset);
  if (config.verify_vocabs) verify_matching_vocabs(*config.model, *provider);
  const auto vocabularies = vocabularies_of(*config.model, provider->output_features());
  std::optional<LossEvaluator> losses;
  std::optional<TaskEvaluator> evaluator;
  EvaluationLog log(config.output_dir, provider->name());
  const std::vector<std::filesystem::path> folders = checkpoint_folders(config.restore);
  describe_results(config.output_dir, folders, config.config_text,
                   config.model->model->parameters(), config.partitioner.logical_axis_rules);
  for (const std::filesystem::path& folder : folders) {
    if (config.restore.mode == "all" && log.has(folder)) {
      fmt::print(stderr, "{} has been evaluated\n", folder.string());
      continue;
    }
    const auto loaded = load(config, folder, vocabularies);
    if (!loaded) continue;
    if (!evaluator) {
      losses = loss_evaluator_of(config, *provider);
      evaluator.emplace(*provider, config.dataset, config.model, config.evaluator);
    }
    if (losses && !evaluate_losses(*losses, *config.model->model, *loaded, asked, *summaries))
      return static_cast<int>(ExitCode::kSavedRunAgain);
    const int64_t step = loaded->checkpoint->step();
    const auto metrics = evaluator->run(step, asked, loaded->weights);
    if (!metrics) return static_cast<int>(ExitCode::kSavedRunAgain);
    QT_CHECK(
        !evaluator->outputs().empty(),
        "quintet eval: no task of '{}' has both a metric and a split '{}'; --split names another",
        provider->name(), config.dataset.split);
    for (const data::TaskOutputs& outputs : evaluator->outputs()) {
      const std::string& task = outputs.task->name();
      print_samples(outputs, samples);
      print_metrics(step, task, outputs.examples->size(), outputs.metrics);
    }
    log_metrics(config.evaluator, step, evaluator->outputs(), *summaries,
                [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
    summaries->flush();
    flush_output();  // only then is the checkpoint done with
    log.add(folder);
  }
  summaries->close();
  return 0;
}

}  // namespace quintet
