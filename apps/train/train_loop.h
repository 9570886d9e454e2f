#pragma once
// A training run: restores, trains, evaluates, saves, writes summaries, stops when asked.
//
//   TrainLoop loop(config, ranks, provider_of, batch_source);
//   return loop.run();                        // 0, or 75: saved, run again
//
// What it does at a step depends on the step alone, so a run that was stopped and started again
// writes the same metrics and the same checkpoints as one that was not (P4 of the fault table).

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "apps/input/data_service.h"
#include "apps/process/rank_checks.h"
#include "apps/train/evaluations.h"
#include "apps/train/non_finite_guard.h"
#include "apps/train/saver.h"
#include "apps/train/summarizer.h"
#include "apps/train/train_run.h"

namespace quintet {

class TrainLoop {
 public:
  /// Takes the lock of the model directory and reads the data sets' descriptions.
  TrainLoop(TrainConfig config, Ranks& ranks, const ProviderOf& provider_of,
            BatchSourceFn batch_source);

  /// Trains to the end (0) or until asked to stop (75). Throws kNonFinite after ten skipped updates
  /// in a row or one that left a number that is not finite, kDisk when saving fails for good.
  int run();

  /// In parts, for who decides between steps what comes next (apps/interactive): open() first; the configuration's
  /// number of steps and its periods play no part. `keep_records`: of the step that is gone on from, those in
  /// metrics.jsonl that are newer than its checkpoint stay; run() writes them again.
  void open(bool keep_records);
  /// So many further steps, fewer if asked to stop; the metrics of their summary. Throws what run() throws.
  std::map<std::string, double> advance(int64_t steps);
  /// A checkpoint of this step on disk, unless there is one. Throws kNonFinite if it must not be, kDisk if it cannot.
  void save();
  TrainRun& state() { return run_; }

 private:
  int run_steps();
  void show_progress();
  std::optional<data::Batch> next_batch();
  /// Why there was none: all ranks stop at the same step, whichever was asked to.
  std::optional<std::string> train_step();
  /// Ranks look at each other.
  void check_ranks();
  bool evaluate();  // false: asked to stop on the way
  /// Asks all ranks.
  std::optional<std::string> stop_reason();
  /// What they have agreed on before a step.
  std::optional<std::string> stop_reason(const StepFlags& agreed);
  int saved_run_again(const std::string& reason);

  TrainRun run_;
  BatchSourceFn batch_source_;
  NonFiniteGuard non_finite_;
  Saver saver_;
  std::optional<Summarizer> summarizer_;
  std::unique_ptr<Evaluations> evaluations_;
  Pace pace_;
  bool is_first_batch_ = true;
};

}  // namespace quintet
