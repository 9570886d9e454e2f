#include "apps/evaluate/evaluation.h"

#include <nlohmann/json.hpp>

#include "apps/evaluate/evaluation_log.h"
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

}  // namespace

int run_evaluation(EvaluationConfig config, const ProviderOf& provider_of, int64_t samples) {
  StopRequests stop({});
  const data::ProviderPtr provider = provider_of(config.dataset);
  std::unique_ptr<Summaries> summaries = Summaries::none();
  if (!config.output_dir.empty()) {
    summaries = std::make_unique<Summaries>(config.output_dir, int64_t{1} << 60);
    config.evaluator.log_dir = config.output_dir / "inference_eval";
  }
  check_ids(*config.model, *provider, config.dataset);
  if (config.verify_vocabs) verify_matching_vocabs(*config.model, *provider);
  const auto vocabularies = vocabularies_of(*config.model, provider->output_features());
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
    std::shared_ptr<const CheckpointReader> checkpoint;
    Weights weights;
    try {
      checkpoint = open_checkpoint(folder);
      checkpoint->verify();
      check_recorded(*checkpoint, vocabularies);
      BaseModel& model = *config.model->model;
      checkpoint = restored(checkpoint, config.restore, shapes_of(model.parameters()));
      weights = weights_of(config.weights, checkpoint);
      const std::optional<int64_t> seed = config.restore.fallback_seed;
      fmt::print(stderr, "{}", initialized_text(load_for(weights, *checkpoint, model, seed)));
    } catch (const Error&) {
      // The run that trains the model deletes old checkpoints while the newer ones are evaluated.
      if (config.restore.mode != "all" || is_there(folder)) throw;
      fmt::print(stderr, "{} was deleted meanwhile\n", folder.string());
      continue;
    }
    if (!evaluator) evaluator.emplace(*provider, config.dataset, config.model, config.evaluator);
    const auto metrics = evaluator->run(
        checkpoint->step(), [&] { return stop.reason().has_value(); }, weights);
    if (!metrics) return static_cast<int>(ExitCode::kSavedRunAgain);
    QT_CHECK(
        !evaluator->outputs().empty(),
        "quintet eval: no task of '{}' has both a metric and a split '{}'; --split names another",
        provider->name(), config.dataset.split);
    for (const data::TaskOutputs& outputs : evaluator->outputs()) {
      const std::string& task = outputs.task->name();
      print_samples(outputs, samples);
      print_metrics(checkpoint->step(), task, outputs.examples->size(), outputs.metrics);
    }
    log_metrics(config.evaluator, checkpoint->step(), evaluator->outputs(), *summaries,
                [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
    summaries->flush();
    flush_output();  // only then is the checkpoint done with
    log.add(folder);
  }
  summaries->close();
  return 0;
}

}  // namespace quintet
