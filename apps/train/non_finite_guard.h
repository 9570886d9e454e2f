#pragma once
// Numbers of a training run that are not finite: skipped updates are counted, nothing is saved from
// which training could not go on, and a run that cannot recover ends with kNonFinite and a report of
// the batches.

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "apps/train/non_finite_report.h"
#include "apps/train/train_run.h"

namespace quintet {

/// Where an update left numbers that are not finite, by the parameter it is of; empty for none.
std::string ruined_text(const std::string& parameter);

class NonFiniteGuard {
 public:
  explicit NonFiniteGuard(TrainRun& run) : run_(run) {}

  /// After every update, with the batch it was of. Throws kNonFinite after ten skipped updates in a row.
  void after_update(const StepResult& result, const BadStep& step, HostArrays batch);
  /// Whether the last update left a parameter that is not finite, as far as this rank knows.
  bool ruined() const { return !ruined_.empty(); }
  bool has_batch() const { return last_batch_.has_value(); }
  /// Why what there is must not take the place of an older checkpoint; empty: it may.
  std::string why_not_saved();

  /// These end the run. All ranks call them.
  /// For the update before the last, of which a rank found that it ruined parameters.
  [[noreturn]] void stop_on_ruined_update();
  /// For an update that left numbers not finite; `where`: in which tensors, as this rank knows.
  [[noreturn]] void stop_on_ruin(const std::string& where, int64_t update);
  /// At the last step, which must not be saved.
  [[noreturn]] void stop_unsaved(const std::string& why);
  /// An action threw kNonFinite when it saw these values of a summary.
  [[noreturn]] void stop_on_action(const Error& error, const std::map<std::string, double>& values);

 private:
  void look_at(const StepResult& result, const BadStep& step, const HostArrays& batch);
  [[noreturn]] void stop(const std::string& what);
  /// Into the report goes the batch of the last step.
  void blame_last_batch(const std::string& what, double loss);

  TrainRun& run_;
  NonFiniteReport bad_steps_;
  std::string ruined_;  // a parameter that an update left not finite
  std::optional<std::pair<BadStep, HostArrays>> last_batch_, batch_before_;  // for a report
};

}  // namespace quintet
