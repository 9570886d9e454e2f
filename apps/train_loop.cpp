#include "apps/train_loop.h"

#include <chrono>
#include <cmath>

#include "runtime/base/atomic_file.h"
#include "runtime/batch_rows.h"
#include "runtime/mesh/waiting.h"

namespace quintet {
namespace {

constexpr int64_t kSkipsInARow = 10;  // updates that may be skipped before the run gives up

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::map<std::string, double> values_of(const Metrics& metrics) {
  std::map<std::string, double> values;
  for (const auto& [name, metric] : metrics) values[name] = metric.value();
  return values;
}

/// T5X's timing/ names; "core" is a device, and there is one.
void add_timing(std::map<std::string, double>& values, double seconds, int64_t steps,
                int64_t batch_size, const Metrics& window, double uptime) {
  const auto count = static_cast<double>(steps);
  const double sequences = count * static_cast<double>(batch_size);
  const auto tokens = window.find("loss_per_nonpadding_target_token");
  values["timing/seconds"] = seconds;
  values["timing/seqs"] = sequences;
  values["timing/uptime"] = uptime;
  if (seconds <= 0) return;
  values["timing/steps_per_second"] = count / seconds;
  values["timing/seqs_per_second"] = values["timing/seqs_per_second_per_core"] =
      sequences / seconds;
  if (tokens != window.end())
    values["timing/target_tokens_per_second"] = values["timing/target_tokens_per_second_per_core"] =
        tokens->second.count / seconds;
}

}  // namespace

bool TrainLoop::due(int64_t period) const {
  const int64_t since = trainer_->step() - state_.first_step;
  return trainer_->step() == total_steps_ || (period > 0 && since > 0 && since % period == 0);
}

bool TrainLoop::save_due() const {
  if (!config_.checkpoint.save) return trainer_->step() == total_steps_;
  const SaveCheckpointConfig& save = *config_.checkpoint.save;
  const auto& steps = save.checkpoint_steps;
  return due(save.period.value_or(0)) ||
         std::find(steps.begin(), steps.end(), trainer_->step()) != steps.end();
}

int TrainLoop::run() {
  started_ = now_seconds();
  restore();
  write_run_files();
  ready_seconds_ = now_seconds() - started_;
  Progress::Options options = Progress::from_environment();
  if (!ranks_.leads()) options.out = nullptr;
  progress_ = std::make_unique<Progress>("train", trainer_->step(), total_steps_, options);
  progress_->line(fmt::format("{}: step {} of {}, {} parameters", config_.model_dir.string(),
                              trainer_->step(), total_steps_,
                              config_.model->model->parameters().elements()));
  if (!resumed_) save(false);  // written beside the first steps; without it the run ends at once
  const bool at_start = trainer_->step() == state_.first_step;
  const bool evaluation_due =
      due(config_.eval_period) || (at_start && config_.run_eval_before_training);
  if (evaluation_due && state_.evaluated_step != trainer_->step() && !evaluate())
    return saved_run_again(*stop_reason());
  window_started_ = now_seconds();
  window_first_step_ = trainer_->step();
  while (trainer_->step() < total_steps_ && stop_early_.empty()) {
    if (const auto reason = stop_reason()) return saved_run_again(*reason);
    train_step();
    checkpoints_->poll();
    if (due(config_.stats_period)) summarize();
    if (save_due() || save_overdue_) save_if_good();
    if (due(config_.eval_period) && !evaluate()) return saved_run_again(*stop_reason());
  }
  if (!stop_early_.empty()) {
    summarize();
    progress_->line(stop_early_ + "; stopping early");
  }
  if (saved_step_ != trainer_->step()) {
    if (const std::string reason = why_not_saved(); !reason.empty()) {
      if (state_.skipped_in_a_row == 0) blame_last_batch(reason, last_batch_->first.loss);
      stop_on_numbers(fmt::format("the run is at its end, step {}, but {}, so the end is not saved",
                                  trainer_->step(), reason));
    }
    save(false);
  }
  checkpoints_->finish();
  summaries_->close();
  progress_->update(trainer_->step(), detail());
  progress_->finish();
  return static_cast<int>(ExitCode::kDone);
}

std::optional<std::string> TrainLoop::stop_reason() {
  const std::optional<std::string> own = stop_.reason();
  const int64_t agreed = ranks_.highest(!ruined_.empty() ? 2 : own ? 1 : 0);
  if (agreed == 2) {
    last_batch_ = std::move(batch_before_);  // the gradients of the one since came too late
    const char* what = " or its optimizer state holds values that are not finite";
    stop_on_ruin(ruined_.empty() ? "" : ruined_ + what, trainer_->step() - 2);
  }
  if (agreed == 0) return std::nullopt;
  return own.value_or("a signal to another rank");
}

void TrainLoop::train_step() {
  if (ranks_.comm() != nullptr) ranks_.comm()->set_step(trainer_->step());
  auto batch = batches_->next();
  QT_CHECK_AS(ExitCode::kData, batch.has_value(),
              "task '{}', split '{}': the training data ended at step {}; it must repeat",
              config_.train_dataset.mixture_or_task_name, config_.train_dataset.split,
              trainer_->step());
  // Before the position moves on: restoring it gives this batch again.
  const BadStep step{.step = trainer_->step(), .data_position = state_.data_position};
  const double begin = now_seconds(), waited = seconds_in_collectives();
  const StepResult result = trainer_->train(batch->features);
  pace_.add(now_seconds() - begin - (seconds_in_collectives() - waited));
  check_ranks();
  state_.data_position = batches_->position();
  after_update(result, step, batch->features);
  batch_before_ = std::move(last_batch_);
  last_batch_.emplace(step, std::move(batch->features));
  if (progress_->due())
    progress_->update(trainer_->step(), detail());
  else
    progress_->update(trainer_->step());
}

void TrainLoop::check_ranks() {
  if (ranks_.comm() == nullptr) return;
  const int64_t period = ranks_.flags().check_replicas;
  if (period > 0 && trainer_->step() % period == 0)
    check_replicas(trainer_->state(), ranks_.group());
  if (!pace_.due()) return;
  const std::string slow = pace_.slow_ranks(ranks_.group());
  if (!slow.empty()) progress_->line("warning: " + slow);
}

void TrainLoop::after_update(const StepResult& result, const BadStep& step,
                             const HostArrays& batch) {
  state_.step = trainer_->step();
  state_.skipped_updates = trainer_->skipped_updates();
  ruined_ = result.ruined;
  if (!result.skipped) {
    state_.skipped_in_a_row = 0;
    merge_step(state_.window, result.metrics);
    last_step_ = result.metrics;
    return;
  }
  ++state_.skipped_in_a_row;
  BadStep bad = step;
  bad.tensor = result.first_bad;
  const auto loss = result.metrics.find("loss");
  if (loss != result.metrics.end()) bad.loss = loss->second.value();
  bad_steps_.add(bad, batch);
  progress_->line(fmt::format(
      "warning: step {}: the gradient of {} is not finite; the update was skipped ({} in a row, {} "
      "in all)",
      trainer_->step() - 1, result.first_bad, state_.skipped_in_a_row, state_.skipped_updates));
  if (state_.skipped_in_a_row < kSkipsInARow) return;
  stop_on_numbers(fmt::format(
      "{} updates in a row had gradients that are not finite, the last at step {} in {}; nothing "
      "was saved since the first of them",
      state_.skipped_in_a_row, trainer_->step() - 1, result.first_bad));
}

/// Ends the run; what is known of the batches goes into a file that the message names.
void TrainLoop::stop_on_numbers(const std::string& what) {
  summaries_->flush();
  checkpoints_->wait();
  const std::optional<int64_t> good = checkpoints_->latest_step();
  const std::string go_on =
      good ? fmt::format(
                 "The last checkpoint, {}, is whole and finite, and the same command goes "
                 "on from it: lower the learning rate, clip gradients, or look at the data "
                 "of these steps first; if it ends here again, the run was diverging "
                 "before that checkpoint already: take an earlier one",
                 checkpoint_path(config_.model_dir, *good).string())
           : fmt::format("{} has no checkpoint yet", config_.model_dir.string());
  const std::vector<std::string> shards =
      gather_text(mesh_.group(batch_part().axes).on_host(), bad_steps_.text());
  const std::string file =
      ranks_.leads() ? bad_steps_.write(config_.model_dir, shards).string() : std::string();
  fail(ExitCode::kNumbers, "{}. {}. Steps, tensors and batches: {}", what, go_on,
       ranks_.of_leader(file));
}

void TrainLoop::stop_on_ruin(const std::string& where, int64_t update) {
  std::string first;
  for (const std::string& of_rank : ranks_.gather(where))
    if (first.empty()) first = of_rank;
  if (!last_batch_) fail(ExitCode::kNumbers, "before the first step {}", first);
  blame_last_batch(first, last_batch_->first.loss);
  stop_on_numbers(
      fmt::format("after the update of step {} {}; nothing was saved since", update, first));
}

void TrainLoop::blame_last_batch(const std::string& what, double loss) {
  auto& [step, batch] = *last_batch_;
  step.tensor = what;
  step.loss = loss;
  bad_steps_.add(step, batch);
}

/// The actions of TRAIN; one that ends the run on numbers ends it with a report.
std::string TrainLoop::run_train_actions(const std::map<std::string, double>& values) {
  try {
    return run_actions(config_.actions, "TRAIN", trainer_->step(), {{"train", values}});
  } catch (const Error& error) {
    if (error.code() != ExitCode::kNumbers || !last_batch_) throw;
    const auto loss = values.find("loss");
    blame_last_batch("a metric of the summary after this step",
                     loss != values.end() ? loss->second : last_batch_->first.loss);
    stop_on_numbers(error.what());
  }
}

void TrainLoop::summarize() {
  if (trainer_->step() == window_first_step_) return;
  std::map<std::string, double> values = values_of(state_.window);
  const double now = now_seconds();
  add_timing(values, now - window_started_, trainer_->step() - window_first_step_,
             config_.train_dataset.batch_size, state_.window, now - started_);
  values["skipped_updates"] = static_cast<double>(state_.skipped_updates);
  const auto rate = last_step_.find("learning_rate");
  if (rate != last_step_.end()) values["learning_rate/current"] = rate->second.value();
  if (saved_step_ >= 0) {
    values["timing/checkpoint_seconds"] = checkpoints_->last_timing().write_seconds;
    values["timing/checkpoint_stall_seconds"] = checkpoints_->last_timing().stall_seconds;
  }
  values["timing/init_or_restore_seconds"] = ready_seconds_;
  summaries_->write("train", trainer_->step(), values);
  const std::string reason = run_train_actions(values);
  if (stop_early_.empty()) stop_early_ = reason;
  state_.window.clear();
  window_started_ = now;
  window_first_step_ = trainer_->step();
}

bool TrainLoop::evaluate() {
  const double begin = now_seconds();
  const int64_t step = trainer_->step();
  trainer_->forget_graph();
  const auto asked = [this] { return stop_reason().has_value(); };
  std::map<std::string, TaskMetrics> found;
  if (train_evaluator_) {
    auto metrics = train_evaluator_->run(*config_.model->model, asked);
    if (!metrics) return false;
    found["TRAIN_EVAL"] = std::move(*metrics);
  }
  if (infer_evaluator_) {
    auto metrics = infer_evaluator_->run(step, asked);
    if (!metrics) return false;
    found["INFER_EVAL"] = std::move(*metrics);
  }
  for (const auto& [mode, tasks] : found) {
    const bool decodes = mode == "INFER_EVAL";
    for (const auto& [task, metrics] : tasks) {
      std::string text;
      for (const auto& [name, value] : metrics)
        if (decodes || name == "accuracy")
          text += fmt::format("  {} {:.4g}", name, value);
        else if (name == loss_per_token())
          text += fmt::format("  loss {:.4f} a target token", value);
      if (!decodes) summaries_->write("training_eval/" + task.substr(0, 113), step, metrics);
      if (!decodes || !config_.inference_evaluator.pylogging_logger)
        progress_->line(fmt::format("step {}: {} {}{}", step, task,
                                    decodes ? "decoded:" : "teacher-forced:", text));
    }
    if (decodes)
      log_metrics(config_.inference_evaluator, step, infer_evaluator_->outputs(), *summaries_,
                  [this](const std::string& line) { progress_->line(line); });
    const std::string reason = run_actions(config_.actions, mode, step, tasks);
    if (stop_early_.empty()) stop_early_ = reason;
  }
  state_.evaluated_step = step;
  summaries_->flush();
  const double seconds = now_seconds() - begin;
  window_started_ += seconds;  // an evaluation is no training time
  return true;
}

/// A normalised loss is a mean already, a summed one becomes a mean over the target tokens.
std::string TrainLoop::loss_per_token() const {
  const bool summed = std::holds_alternative<std::monostate>(
      config_.model->model->loss_options().loss_normalizing_factor);
  return summed ? "loss_per_nonpadding_target_token" : "loss";
}

std::string TrainLoop::detail() const {
  const auto loss = last_step_.find(loss_per_token());
  std::string text;
  if (loss != last_step_.end()) text = fmt::format("loss {:.4f}", loss->second.value());
  const auto accuracy = last_step_.find("accuracy");
  if (accuracy != last_step_.end())
    text += fmt::format("  accuracy {:.3f}", accuracy->second.value());
  return text;
}

}  // namespace quintet
