#pragma once
// Evaluations during a training run: teacher-forced, and decoding with the task's metrics.
//
//   Evaluations evaluations(run);
//   if (run.due(run.config.eval_period) && !evaluations.run(asked_to_stop)) return;

#include "apps/evaluate/loss_evaluator.h"
#include "apps/evaluate/task_evaluator.h"
#include "apps/process/inference_ranks.h"
#include "apps/train/train_run.h"

namespace quintet {

class Evaluations {
 public:
  /// Reads the evaluation sets that the configuration names.
  explicit Evaluations(TrainRun& run);
  /// Writes the metrics of this step and runs TRAIN_EVAL's and INFER_EVAL's actions. False, and
  /// nothing is written: `stop_requested` became true on the way. All ranks call it.
  bool run(const std::function<bool()>& stop_requested);

 private:
  TrainRun& run_;
  InferenceRanks division_;
  std::unique_ptr<LossEvaluator> loss_evaluator_;
  std::unique_ptr<TaskEvaluator> task_evaluator_;
};

}  // namespace quintet
