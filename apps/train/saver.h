#pragma once
// A training run's checkpoints: when one is due, whether what there is may be saved, and saving it in
// the background.

#include "apps/train/non_finite_guard.h"
#include "apps/train/train_run.h"

namespace quintet {

class Saver {
 public:
  Saver(TrainRun& run, NonFiniteGuard& numbers) : run_(run), non_finite_(numbers) {}

  /// Whether a checkpoint is to be saved at this step, or was not good at an earlier one.
  bool due() const;
  /// Saves, or says why not and leaves it to the next step.
  void save_if_good();
  /// Saves the last step unless it is saved; ends the run with kNonFinite if it must not be.
  void save_end();
  /// `wait`: until it is on disk, instead of beside the next steps.
  void save(bool wait);

 private:
  TrainRun& run_;
  NonFiniteGuard& non_finite_;
  bool overdue_ = false;
};

}  // namespace quintet
