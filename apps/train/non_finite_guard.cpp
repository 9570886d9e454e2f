#include "apps/train/non_finite_guard.h"

#include "runtime/base/process/messages.h"
#include "runtime/trainer/batch_rows.h"

namespace quintet {
namespace {

constexpr int64_t kSkipsInARow = 10;  // updates that may be skipped before the run gives up

}  // namespace

std::string ruined_text(const std::string& parameter) {
  return parameter.empty() ? ""
                           : parameter + " or its optimizer state holds values that are not finite";
}

void NonFiniteGuard::after_update(const StepResult& result, const BadStep& step, HostArrays batch) {
  look_at(result, step, batch);
  batch_before_ = std::move(last_batch_);
  last_batch_.emplace(step, std::move(batch));
}

void NonFiniteGuard::look_at(const StepResult& result, const BadStep& step,
                             const HostArrays& batch) {
  ruined_ = result.ruined;
  if (!result.skipped) {
    run_.state.skipped_in_a_row = 0;
    return;
  }
  ++run_.state.skipped_in_a_row;
  BadStep bad = step;
  bad.tensor = result.first_bad;
  const auto loss = result.metrics.find("loss");
  if (loss != result.metrics.end()) bad.loss = loss->second.value();
  bad_steps_.add(bad, batch);
  run_.progress->line(fmt::format(
      "{}step {}: the gradient of {} is not finite; the update was skipped ({} in a row, {} "
      "in all)",
      warning_label(), run_.step() - 1, result.first_bad, run_.state.skipped_in_a_row,
      run_.state.skipped_updates));
  if (run_.state.skipped_in_a_row < kSkipsInARow) return;
  stop(fmt::format(
      "{} updates in a row had gradients that are not finite, the last at step {} in {}; nothing "
      "was saved since the first of them",
      run_.state.skipped_in_a_row, run_.step() - 1, result.first_bad));
}

/// Ends the run; what is known of the batches goes into a file that the message names.
void NonFiniteGuard::stop(const std::string& what) {
  run_.summaries->flush();
  run_.checkpoints->wait();
  const std::optional<int64_t> good = run_.checkpoints->latest_step();
  const std::string go_on =
      good ? fmt::format(
                 "The last checkpoint, {}, is whole and finite, and the same command goes "
                 "on from it: lower the learning rate, clip gradients, or look at the data "
                 "of these steps first; if it ends here again, the run was diverging "
                 "before that checkpoint already: take an earlier one",
                 checkpoint_path(run_.config.model_dir, *good).string())
           : fmt::format("{} has no checkpoint yet", run_.config.model_dir.string());
  const std::vector<std::string> shards =
      gather_text(run_.mesh.group(batch_part().axes).on_host(), bad_steps_.text());
  const std::string file =
      run_.ranks.leads() ? bad_steps_.write(run_.config.model_dir, shards).string() : std::string();
  fail(ExitCode::kNonFinite, "{}. {}. Steps, tensors and batches: {}", what, go_on,
       run_.ranks.of_leader(file));
}

void NonFiniteGuard::stop_on_ruined_update() {
  last_batch_ = std::move(batch_before_);  // the gradients of the one since came too late
  stop_on_ruin(ruined_text(ruined_), run_.step() - 2);
}

void NonFiniteGuard::stop_on_ruin(const std::string& where, int64_t update) {
  std::string first;
  for (const std::string& of_rank : run_.ranks.gather(where))
    if (first.empty()) first = of_rank;
  if (!last_batch_) fail(ExitCode::kNonFinite, "before the first step {}", first);
  blame_last_batch(first, last_batch_->first.loss);
  stop(fmt::format("after the update of step {} {}; nothing was saved since", update, first));
}

void NonFiniteGuard::blame_last_batch(const std::string& what, double loss) {
  auto& [step, batch] = *last_batch_;
  step.tensor = what;
  step.loss = loss;
  bad_steps_.add(step, batch);
}

/// The batch of the last step shows whether training can go on from the parameters as they are:
/// finite ones may still be so large that it cannot.
std::string NonFiniteGuard::why_not_saved() {
  if (run_.state.skipped_in_a_row > 0)
    return fmt::format("the last update was skipped ({} in a row)", run_.state.skipped_in_a_row);
  if (!last_batch_) return "";
  const std::string bad = run_.trainer->first_bad_gradient(last_batch_->second);
  return bad.empty() ? "" : fmt::format("the gradient of {} would not be finite now", bad);
}

void NonFiniteGuard::stop_unsaved(const std::string& why) {
  if (run_.state.skipped_in_a_row == 0) blame_last_batch(why, last_batch_->first.loss);
  stop(fmt::format("the run is at its end, step {}, but {}, so the end is not saved", run_.step(),
                   why));
}

void NonFiniteGuard::stop_on_action(const Error& error,
                                    const std::map<std::string, double>& values) {
  const auto loss = values.find("loss");
  if (run_.state.skipped_in_a_row == 0)
    blame_last_batch("a metric of the summary after this step",
                     loss != values.end() ? loss->second : last_batch_->first.loss);
  stop(error.what());
}

}  // namespace quintet
