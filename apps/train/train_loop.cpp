#include "apps/train/train_loop.h"

#include "apps/train/restorer.h"
#include "apps/train/run_files.h"
#include "runtime/base/execution_context.h"
#include "runtime/base/process/messages.h"
#include "runtime/metrics/metrics_log.h"

namespace quintet {

TrainLoop::TrainLoop(TrainConfig config, Ranks& ranks, const ProviderOf& provider_of,
                     BatchSourceFn batch_source)
    : run_(std::move(config), ranks, provider_of),
      batch_source_(std::move(batch_source)),
      non_finite_(run_),
      saver_(run_, non_finite_) {}

int TrainLoop::run() {
  const int code = run_steps();
  run_.ranks.highest(0);  // all have saved: an mpirun that stood still may kill ranks from here on
  return code;
}

void TrainLoop::open(bool keep_records) {
  summarizer_.emplace(run_, non_finite_);
  restore(run_, batch_source_);
  if (keep_records)
    run_.state.metrics_bytes =
        MetricsLog::bytes_before_step(run_.config.model_dir / "metrics.jsonl", run_.step() + 1);
  write_run_files(run_);
  evaluations_ = std::make_unique<Evaluations>(run_);
  summarizer_->ready();
}

std::map<std::string, double> TrainLoop::advance(int64_t steps) {
  run_.total_steps = run_.step() + steps;
  run_.progress = std::make_unique<Progress>("train", run_.step(), run_.total_steps,
                                             Progress::from_environment());
  run_.state.window.clear();  // of steps before an error, or of the run that is gone on with
  summarizer_->begin_window();
  while (run_.step() < run_.total_steps && !train_step()) run_.checkpoints->poll();
  const std::map<std::string, double> metrics = summarizer_->summarize();
  run_.progress->finish();
  run_.summaries->flush();
  return metrics;
}

void TrainLoop::save() {
  const int64_t saved = run_.saved_step;
  try {
    saver_.save_end();
    run_.checkpoints->finish();
  } catch (...) {
    run_.saved_step = saved;  // it is not: the next save tries again
    throw;
  }
}

int TrainLoop::run_steps() {
  open(false);
  show_progress();
  if (!run_.resumed)
    saver_.save(false);  // written beside the first steps; without it the run ends at once
  const bool at_start = run_.step() == run_.state.first_step;
  const bool evaluation_due =
      run_.due(run_.config.eval_period) || (at_start && run_.config.run_eval_before_training);
  if (evaluation_due && run_.state.evaluated_step != run_.step() && !evaluate())
    return saved_run_again(*stop_reason());
  summarizer_->begin_window();
  while (run_.step() < run_.total_steps && run_.stop_early.empty()) {
    if (const auto reason = train_step()) return saved_run_again(*reason);
    run_.checkpoints->poll();
    if (run_.due(run_.config.stats_period)) summarizer_->summarize();
    if (saver_.due()) saver_.save_if_good();
    if (run_.due(run_.config.eval_period) && !evaluate()) return saved_run_again(*stop_reason());
  }
  if (!run_.stop_early.empty()) {
    summarizer_->summarize();
    run_.progress->line(run_.stop_early + "; stopping early");
  }
  saver_.save_end();
  run_.checkpoints->finish();
  run_.summaries->close();
  run_.progress->update(run_.step(), summarizer_->detail());
  run_.progress->finish();
  return static_cast<int>(ExitCode::kDone);
}

void TrainLoop::show_progress() {
  Progress::Options options = Progress::from_environment();
  if (!run_.ranks.leads()) options.out = nullptr;
  run_.progress = std::make_unique<Progress>("train", run_.step(), run_.total_steps, options);
  run_.progress->line(fmt::format("{}: step {} of {}, {} parameters",
                                  run_.config.model_dir.string(), run_.step(), run_.total_steps,
                                  run_.config.model->model->parameters().elements()));
}

std::optional<std::string> TrainLoop::stop_reason() {
  const int64_t agreed = run_.ranks.highest(non_finite_.ruined() ? 2 : run_.stop.reason() ? 1 : 0);
  return stop_reason({.stop = agreed == 1, .ruined = agreed == 2});
}

std::optional<std::string> TrainLoop::stop_reason(const StepFlags& agreed) {
  if (agreed.ruined) non_finite_.stop_on_ruined_update();
  if (!agreed.stop) return std::nullopt;
  return run_.stop.reason().value_or("a signal to another rank");
}

bool TrainLoop::evaluate() {
  const double begin = now_seconds();
  if (!evaluations_->run([this] { return stop_reason().has_value(); })) return false;
  summarizer_->leave_out(now_seconds() - begin);
  return true;
}

std::optional<data::Batch> TrainLoop::next_batch() {
  const double begin = now_seconds();
  auto batch = run_.batches->next();
  if (is_first_batch_) summarizer_->waited_for_first_batch(now_seconds() - begin);
  is_first_batch_ = false;
  return batch;
}

std::optional<std::string> TrainLoop::train_step() {
  if (run_.ranks.comm() != nullptr) run_.ranks.comm()->set_step(run_.step());
  auto batch = next_batch();
  const StepFlags agreed = run_.config.model->model->agree(batch ? &batch->features : nullptr,
                                                           run_.config.trainer.num_microbatches,
                                                           {.stop = run_.stop.reason().has_value(),
                                                            .ended = !batch.has_value(),
                                                            .ruined = non_finite_.ruined()});
  if (auto reason = stop_reason(agreed)) return reason;
  QT_CHECK_AS(ExitCode::kData, !agreed.ended,
              "task '{}', split '{}': the training data ended at step {}; it must repeat",
              run_.config.train_dataset.mixture_or_task_name, run_.config.train_dataset.split,
              run_.step());
  // Before the position moves on: restoring it gives this batch again.
  const BadStep step{.step = run_.step(), .data_position = run_.state.data_position};
  double waited = 0;
  const ContextMember<&ExecutionContext::waited> use(waited);
  const double begin = now_seconds();
  const StepResult result = run_.trainer->train(batch->features);
  if (run_.ranks.comm() != nullptr) waited += run_.ranks.comm()->take_stalled_seconds();
  pace_.add(now_seconds() - begin - waited);
  check_ranks();
  run_.state.data_position = run_.batches->position();
  run_.state.step = run_.step();
  run_.state.skipped_updates = run_.trainer->skipped_updates();
  summarizer_->add_drawn(batch->drawn);
  non_finite_.after_update(result, step, std::move(batch->features));
  if (result.skipped)
    summarizer_->add_skipped(result.metrics);
  else
    summarizer_->add(result.metrics);
  if (run_.progress->due())
    run_.progress->update(run_.step(), summarizer_->detail());
  else
    run_.progress->update(run_.step());
  return std::nullopt;
}

void TrainLoop::check_ranks() {
  if (run_.ranks.comm() == nullptr) return;
  const int64_t period = run_.ranks.flags().check_replicas;
  if (period > 0 && run_.step() % period == 0) check_replicas(run_.trainer->state(), run_.mesh);
  if (!pace_.due()) return;
  const std::string slow = pace_.slow_ranks(run_.ranks.group());
  if (!slow.empty()) run_.progress->line(warning_label() + slow);
}

int TrainLoop::saved_run_again(const std::string& reason) {
  run_.checkpoints->wait();
  const int64_t step = run_.step();
  const std::string bad = run_.saved_step != step ? non_finite_.why_not_saved() : std::string();
  if (bad.empty() && run_.saved_step != step) saver_.save(true);
  run_.summaries->close();
  run_.stop.clear_stop_file();
  run_.progress->update(run_.step(), summarizer_->detail());
  run_.progress->finish();
  const int64_t from = run_.checkpoints->latest_step().value_or(0);
  if (run_.ranks.leads())
    fmt::print(
        stderr, "stopped by {} and {}: {}; the same command goes on from step {} of {}\n", reason,
        bad.empty() ? "saved"
                    : fmt::format("not saved at step {}, as {}; the last checkpoint", step, bad),
        checkpoint_path(run_.config.model_dir, from).string(), from, run_.total_steps);
  return static_cast<int>(ExitCode::kSavedRunAgain);
}

}  // namespace quintet
