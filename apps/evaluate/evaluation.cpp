#include "apps/evaluate/evaluation.h"

#include <nlohmann/json.hpp>

#include "apps/evaluate/evaluated_checkpoints.h"
#include "apps/evaluate/evaluation_log.h"
#include "apps/evaluate/loss_evaluator.h"
#include "apps/evaluate/task_evaluator.h"
#include "apps/input/run_vocabularies.h"
#include "apps/input/same_data.h"
#include "apps/model/checkpoint_parameters.h"
#include "apps/model/model_info.h"
#include "apps/model/predictor.h"
#include "apps/model/restored_checkpoint.h"
#include "apps/process/inference_ranks.h"
#include "apps/process/output.h"
#include "apps/process/progress.h"
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

void print_metrics(const ResultFormat& format, nlohmann::ordered_json of, const std::string& title,
                   const nlohmann::ordered_json& metrics) {
  of.update(metrics);
  format.print_object(of.dump());
  std::string text = title + "\n";
  for (const auto& [name, value] : metrics.items())
    text +=
        fmt::format("  {:<30} {}\n", name,
                    value.is_number() ? fmt::format("{:.6g}", value.get<double>()) : value.dump());
  format.print_text(text);
}

struct Loaded {
  std::shared_ptr<const CheckpointReader> checkpoint;
  Weights weights;

  int64_t step() const { return checkpoint->step(); }
};

/// Nothing if the run that trains the model deleted the checkpoint while others were evaluated.
std::optional<Loaded> load(const EvaluationConfig& config, const std::filesystem::path& folder,
                           const data::VocabularyRecords& vocabularies, SharedMemoryGroup* group,
                           bool leads) {
  try {
    Loaded loaded{open_checkpoint(folder), {}};
    loaded.checkpoint->verify_before_reading();
    check_recorded(*loaded.checkpoint, vocabularies, leads);
    BaseModel& model = *config.model->model;
    loaded.checkpoint = restored(loaded.checkpoint, config.restore, shapes_of(model.parameters()));
    loaded.weights = group == nullptr || config.restore.fallback_seed
                         ? weights_of(config.weights, loaded.checkpoint)
                         : weights_to_generate(config.weights, loaded.checkpoint, group);
    loaded.weights.ranks = group;
    const std::optional<int64_t> seed = config.restore.fallback_seed;
    const std::string warning =
        initialized_text(load_for(loaded.weights, *loaded.checkpoint, model, seed));
    if (leads) fmt::print(stderr, "{}", warning);
    return loaded;
  } catch (const Error&) {
    if (config.restore.mode != "all" || is_there(folder)) throw;
    if (leads) fmt::print(stderr, "{} was deleted meanwhile\n", folder.string());
    return std::nullopt;
  }
}

/// What T5X's training_evaluator_cls asks for; nothing if it is None.
std::optional<LossEvaluator> loss_evaluator_of(const EvaluationConfig& config,
                                               const data::Provider& provider, const Ranks& ranks) {
  if (config.train_eval_steps == 0) return std::nullopt;
  return LossEvaluator(provider, config.dataset,
                       converter_for(*config.model, data::converter_options(config.dataset)), {},
                       config.train_eval_steps, ranks.size(), [&](const std::string& line) {
                         if (ranks.leads()) fmt::print(stderr, "{}\n", line);
                       });
}

/// Whether packed parameters give the losses: T5X's on the CPU; of GPUs that hold a model together.
bool losses_packed(const BaseModel& model, const SharedMemoryGroup* group) {
  if (model.spec().own_network) return false;
  return Device::current().is_cpu() ? !model.has_own_loss() : group != nullptr;
}

/// Teacher-forced losses, to stdout and as training does. False if asked to stop.
bool evaluate_losses(const LossEvaluator& evaluator, const ConfiguredModel& configured,
                     const Loaded& loaded, const std::function<bool()>& stop,
                     const data::Peers& peers, bool leads, Summaries& summaries,
                     const ResultFormat& format) {
  QT_CHECK(loaded.weights.type == WeightType::f32,
           "eval_script.evaluate.training_evaluator_cls: losses are computed in float32 alone; "
           "bind None, or leave --quantize");
  const int64_t step = loaded.step();
  const BaseModel& model = *configured.model;
  std::optional<Predictor> packed;
  if (losses_packed(model, loaded.weights.ranks))
    packed.emplace(configured, DecodeFlags{}, loaded.weights);
  const auto eval_fn = [&](const HostArrays& batch) {
    return packed ? packed->losses(model, batch) : model.eval_fn(batch);
  };
  const auto metrics = evaluator.run(eval_fn, stop, peers);
  if (!metrics) return false;
  if (!leads) return true;
  for (const auto& [task, values] : *metrics) {
    summaries.write("training_eval/" + task.substr(0, 113), step, values);
    nlohmann::ordered_json losses;
    for (const auto& [name, value] : values)
      if (!name.starts_with("timing/")) losses[name] = json_number(value);
    print_metrics(format, {{"step", step}, {"training_eval", task}},
                  fmt::format("training_eval/{}, step {}", task, step), losses);
  }
  return true;
}

void report(const EvaluationConfig& config, int64_t step, const std::vector<data::TaskOutputs>& all,
            int64_t samples, Summaries& summaries, const ResultFormat& format) {
  for (const data::TaskOutputs& outputs : all) {
    print_samples(outputs, samples);
    nlohmann::ordered_json metrics;
    for (const auto& [name, value] : scalars_of(outputs.metrics))
      metrics[name] = json_number(value);
    const std::string& task = outputs.task->name();
    const size_t examples = outputs.examples->size();
    print_metrics(format, {{"step", step}, {"task", task}, {"examples", examples}},
                  fmt::format("{}, step {}, {} examples", task, step, examples), metrics);
  }
  log_metrics(config.evaluator, step, all, summaries,
              [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
  summaries.flush();
  flush_output();  // only then is the checkpoint done with
}

}  // namespace

int run_evaluation(EvaluationConfig config, const Ranks& ranks, const ProviderOf& provider_of,
                   int64_t samples, const ResultFormat& format) {
  StopRequests stop({});
  const auto asked = [&] { return ranks.highest(stop.reason() ? 1 : 0) > 0; };
  const InferenceRanks division(ranks, model_ranks_of(config.partitioner.num_partitions, ranks));
  const data::Peers peers = division.peers();
  config.evaluator.options.peers = peers;
  PartsProgress progress;
  if (ranks.leads())
    config.evaluator.options.progress = [&](const data::Task& task, int64_t done, int64_t total) {
      progress.update(task.name(), done, total, "examples");
    };
  const data::ProviderPtr provider = provider_of(config.dataset);
  std::unique_ptr<Summaries> summaries = Summaries::none();
  if (!config.output_dir.empty() && ranks.leads()) {
    summaries = std::make_unique<Summaries>(config.output_dir, int64_t{1} << 60);
    config.evaluator.log_dir = config.output_dir / "inference_eval";
  }
  if (config.verify_vocabs) verify_matching_vocabs(*config.model, *provider);
  check_ids(*config.model, *provider, config.dataset);
  agree_on_data(ranks, *config.model, {{"eval", provider, config.dataset}});
  const auto vocabularies = vocabularies_of(*config.model, provider->output_features());
  std::optional<LossEvaluator> losses;
  std::optional<TaskEvaluator> evaluator;
  EvaluationLog log(config.output_dir, provider->name());
  EvaluatedCheckpoints checkpoints(config, ranks);
  if (config.follow) config.restore.mode = "all";
  if (ranks.leads())
    describe_results(config.output_dir, checkpoints.folders(), config.config_text,
                     config.model->model->parameters(), config.partitioner.logical_axis_rules);
  while (const auto folder = checkpoints.next(asked)) {
    const bool done = ranks.leads() && config.restore.mode == "all" && log.has(*folder);
    if (done) fmt::print(stderr, "{} has been evaluated\n", folder->string());
    if (ranks.highest(done ? 1 : 0) > 0) continue;
    const auto loaded = load(config, *folder, vocabularies, division.group(), ranks.leads());
    if (ranks.highest(loaded ? 0 : 1) > 0) continue;
    if (!evaluator) {
      losses = loss_evaluator_of(config, *provider, ranks);
      division.check_whole(losses && !losses_packed(*config.model->model, division.group()),
                           "eval_script.evaluate.training_evaluator_cls: losses of a model with a "
                           "loss or network of its own");
      evaluator.emplace(*provider, config.dataset, config.model, config.evaluator);
    }
    if (losses && !evaluate_losses(*losses, *config.model, *loaded, asked, peers, ranks.leads(),
                                   *summaries, format))
      return static_cast<int>(ExitCode::kSavedRunAgain);
    const auto metrics = evaluator->run(loaded->step(), asked, loaded->weights, config.cache_type);
    progress.finish();
    if (!metrics) return static_cast<int>(ExitCode::kSavedRunAgain);
    QT_CHECK(
        !evaluator->outputs().empty(),
        "quintet eval: no task of '{}' has both a metric and a split '{}'; --split names another",
        provider->name(), config.dataset.split);
    if (!ranks.leads()) continue;
    report(config, loaded->step(), evaluator->outputs(), samples, *summaries, format);
    log.add(*folder);
  }
  summaries->close();
  return config.follow && asked() ? static_cast<int>(ExitCode::kSavedRunAgain) : 0;
}

}  // namespace quintet
