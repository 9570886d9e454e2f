#include "apps/train/summarizer.h"

#include <cmath>
#include <limits>

#include "apps/evaluate/step_timing.h"
#include "apps/process/memory_limit.h"
#include "kernels/device.h"

namespace quintet {
namespace {

std::map<std::string, double> values_of(const Metrics& metrics) {
  std::map<std::string, double> values;
  for (const auto& [name, metric] : metrics) values[name] = metric.value();
  return values;
}

}  // namespace

void Summarizer::begin_window() {
  window_started_ = now_seconds();
  window_first_step_ = run_.step();
}

void Summarizer::add(const Metrics& step) {
  merge_step(run_.state.window, step);
  last_step_ = step;
}

void Summarizer::add_skipped(const Metrics& step) {
  not_finite_["loss"] = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [name, metric] : step)
    if (!std::isfinite(metric.value())) not_finite_[name] = metric.value();
}

void Summarizer::add_drawn(const data::DrawnExamples& drawn) {
  Metrics step;
  for (const auto& [task, count] : drawn)
    step["mixture/" + task] = {.total = static_cast<double>(count), .count = 1, .per_step = true};
  merge_step(run_.state.window, step);
}

/// The actions of TRAIN; one that ends the run on non-finite values ends it with a report.
std::string Summarizer::run_train_actions(const std::map<std::string, double>& values) {
  try {
    return run_actions(run_.config.actions, "TRAIN", run_.step(), {{"train", values}});
  } catch (const Error& error) {
    if (error.code() != ExitCode::kNonFinite || !non_finite_.has_batch()) throw;
    non_finite_.stop_on_action(error, values);
  }
}

std::map<std::string, double> Summarizer::summarize() {
  if (run_.step() == window_first_step_) return {};
  std::map<std::string, double> values = values_of(run_.state.window);
  const double now = now_seconds();
  values.merge(timing_of({now - window_started_, run_.step() - window_first_step_,
                          run_.config.train_dataset.batch_size, run_.ranks.size()},
                         run_.state.window));
  values["timing/uptime"] = now - started_;
  values["skipped_updates"] = static_cast<double>(run_.state.skipped_updates);
  const auto rate = last_step_.find("learning_rate");
  if (rate != last_step_.end()) values["learning_rate/current"] = rate->second.value();
  if (run_.saved_step >= 0) {
    values["timing/checkpoint_seconds"] = run_.checkpoints->last_timing().write_seconds;
    values["timing/checkpoint_stall_seconds"] = run_.checkpoints->last_timing().stall_seconds;
  }
  values["timing/init_or_restore_seconds"] = ready_seconds_;
  values["timing/train_iter_warmup"] = first_batch_seconds_;
  values["timing/compilation_seconds"] = 0;  // nothing is compiled
  values["memory/resident_bytes"] = static_cast<double>(resident_bytes());
  values["memory/peak_tensor_bytes"] = static_cast<double>(Device::current().memory().peak_bytes());
  run_.summaries->write("train", run_.step(), values);
  for (const auto& [name, value] : not_finite_) values[name] = value;
  not_finite_.clear();
  const std::string reason = run_train_actions(values);
  if (run_.stop_early.empty()) run_.stop_early = reason;
  run_.state.window.clear();
  window_started_ = now;
  window_first_step_ = run_.step();
  return values;
}

std::string Summarizer::detail() const {
  const auto loss = last_step_.find(run_.loss_per_token());
  std::string text;
  if (loss != last_step_.end()) text = fmt::format("loss {:.4f}", loss->second.value());
  const auto accuracy = last_step_.find("accuracy");
  if (accuracy != last_step_.end())
    text += fmt::format("  accuracy {:.3f}", accuracy->second.value());
  return text;
}

}  // namespace quintet
