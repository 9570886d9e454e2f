#include "apps/train/evaluations.h"

#include <algorithm>
#include <numeric>

#include "models/decoding/gpu/gpu_weights.h"
#include "runtime/base/clock.h"

namespace quintet {

namespace {

bool has_shards(const Parameters& parameters) {
  return std::ranges::any_of(parameters.all(), [](const ParamInfo& parameter) {
    return parameter.value.layout().sharded();
  });
}

/// Ranks that decode together: as many of a host as its ranks and the heads allow, since neither all of the model
/// nor the same bytes of it should be read by each. GPUs that have all of it do not wait for each other.
int64_t decoding_ranks(const TrainRun& run) {
  const BaseModel& model = *run.config.model->model;
  const ModelSpec& spec = model.spec();
  const bool on_gpus = !Device::current().is_cpu();
  if (on_gpus && !has_shards(model.parameters())) return 1;
  // Neighbours of one host, as many on each.
  const std::vector<std::string>& hosts = run.ranks.session().hosts();
  int64_t common = 0, same = 0;
  for (int64_t rank = 0; rank < run.ranks.size(); ++rank) {
    const auto at = hosts.begin() + rank;
    same = rank > 0 && *at == *(at - 1) ? same + 1 : 1;
    if (rank + 1 == run.ranks.size() || *(at + 1) != *at) common = std::gcd(common, same);
  }
  int64_t count = std::min(common, spec.decoder.layer.num_heads);
  while (common % count != 0 || (on_gpus && !decoding::has_equal_parts(spec, count))) --count;
  return count;
}

}  // namespace

Evaluations::Evaluations(TrainRun& run)
    : run_(run), division_(run.ranks, run.config.infer_eval_dataset ? decoding_ranks(run) : 1) {
  if (const auto& set = run_.config.train_eval_dataset)
    loss_evaluator_ = std::make_unique<LossEvaluator>(
        *run_.train_eval_provider, *set,
        converter_for(*run_.config.model, data::converter_options(*set)), run_.train_eval_shard,
        run_.config.eval_steps, run_.ranks.size(), [this](const std::string& line) {
          if (run_.ranks.leads()) fmt::print(stderr, "{}\n", line);
        });
  if (run_.config.infer_eval_dataset) {
    if (run_.ranks.leads())
      run_.config.evaluator.log_dir = run_.config.model_dir / "inference_eval";
    run_.config.evaluator.options.peers = division_.peers();
    task_evaluator_ =
        std::make_unique<TaskEvaluator>(*run_.infer_eval_provider, *run_.config.infer_eval_dataset,
                                        run_.config.model, run_.config.evaluator);
  }
}

bool Evaluations::run(const std::function<bool()>& stop_requested) {
  const int64_t step = run_.step();
  run_.trainer->forget_graph();
  std::map<std::string, TaskMetrics> found;
  if (loss_evaluator_) {
    const BaseModel& model = *run_.config.model->model;
    auto metrics = loss_evaluator_->run(
        [&](const HostArrays& batch) { return model.eval_fn(batch); }, stop_requested);
    if (!metrics) return false;
    found["TRAIN_EVAL"] = std::move(*metrics);
  }
  if (task_evaluator_) {
    const double begin = now_seconds();
    auto metrics = task_evaluator_->run(step, stop_requested, {.ranks = division_.group()});
    if (!metrics) return false;
    run_.summaries->write("train", step, {{"timing/evaluate_seconds", now_seconds() - begin}});
    found["INFER_EVAL"] = std::move(*metrics);
  }
  for (const auto& [mode, tasks] : found) {
    const bool decodes = mode == "INFER_EVAL";
    for (const auto& [task, metrics] : tasks) {
      std::string text;
      for (const auto& [name, value] : metrics)
        if (decodes || name == "accuracy")
          text += fmt::format("  {} {:.4g}", name, value);
        else if (name == run_.loss_per_token())
          text += fmt::format("  loss {:.4f} per target token", value);
      if (!decodes) run_.summaries->write("training_eval/" + task.substr(0, 113), step, metrics);
      if (!decodes || !run_.config.evaluator.pylogging_logger)
        run_.progress->line(fmt::format("step {}: {} {}{}", step, task,
                                        decodes ? "decoded:" : "teacher-forced:", text));
    }
    if (decodes)
      log_metrics(run_.config.evaluator, step, task_evaluator_->outputs(), *run_.summaries,
                  [this](const std::string& line) { run_.progress->line(line); });
    const std::string reason = run_actions(run_.config.actions, mode, step, tasks);
    if (run_.stop_early.empty()) run_.stop_early = reason;
  }
  run_.state.evaluated_step = step;
  run_.summaries->flush();
  return true;
}

}  // namespace quintet
