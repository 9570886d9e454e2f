#pragma once
// A training run's summaries: the metrics of the steps since the last one, timing, TRAIN's actions.

#include <map>
#include <string>

#include "apps/train/non_finite_guard.h"
#include "apps/train/train_run.h"
#include "runtime/base/clock.h"

namespace quintet {

class Summarizer {
 public:
  /// The run starts now.
  Summarizer(TrainRun& run, NonFiniteGuard& numbers)
      : run_(run), non_finite_(numbers), started_(now_seconds()) {}

  /// It is restored, and about to train.
  void ready() { ready_seconds_ = now_seconds() - started_; }
  /// The first batch was waited for so long.
  void waited_for_first_batch(double seconds) { first_batch_seconds_ = seconds; }
  /// Timing begins with the next step.
  void begin_window();
  /// Of a step whose update was not skipped.
  void add(const Metrics& step);
  /// Of one whose update was skipped, which T5X makes and has no finite loss after: TRAIN's actions see that, and
  /// what else of the step is not finite; none of it is averaged.
  void add_skipped(const Metrics& step);
  /// What was drawn for a step's batch, whether its update was skipped or not.
  void add_drawn(const data::DrawnExamples& drawn);
  /// Time that is no training time: of an evaluation.
  void leave_out(double seconds) { window_started_ += seconds; }
  /// Writes what was added since the last call, and runs TRAIN's actions; what was written. Nothing if no step was made.
  std::map<std::string, double> summarize();
  /// Loss and accuracy of the last step, for the progress line.
  std::string detail() const;

 private:
  std::string run_train_actions(const std::map<std::string, double>& values);

  TrainRun& run_;
  NonFiniteGuard& non_finite_;
  double started_, ready_seconds_ = 0, first_batch_seconds_ = 0, window_started_ = 0;
  int64_t window_first_step_ = 0;
  Metrics last_step_;
  std::map<std::string, double> not_finite_;  // of skipped steps since the last summary
};

}  // namespace quintet
