#pragma once
// A training run: restores, trains, evaluates, saves, writes summaries, stops when asked.
//
//   TrainLoop loop(config, ranks, provider_of, batch_source);
//   return loop.run();                        // 0, or 75: saved, run again
//
// What it does at a step depends on the step alone, so a run that was stopped and started again
// writes the same metrics and the same checkpoints as one that was not (P4 of the fault table).

#include <functional>
#include <memory>

#include "apps/data_service.h"
#include "apps/numbers_report.h"
#include "apps/progress.h"
#include "apps/rank_checks.h"
#include "apps/ranks.h"
#include "apps/signals.h"
#include "apps/summaries.h"
#include "apps/train_config.h"
#include "apps/train_evaluator.h"
#include "apps/train_state.h"
#include "runtime/base/folder_lock.h"
#include "runtime/mesh/mesh.h"
#include "runtime/mesh/sharding.h"

namespace quintet {

class TrainLoop {
 public:
  using ProviderOf = std::function<data::ProviderPtr(const data::DatasetConfig& config)>;
  /// Takes the lock of the model directory and reads the data sets' descriptions.
  TrainLoop(TrainConfig config, Ranks& ranks, const ProviderOf& provider_of,
            BatchSourceFn batch_source);

  /// Trains to the end (0) or until asked to stop (75). Throws kNumbers after ten skipped updates
  /// in a row or one that left a number that is not finite, kDisk when saving fails for good.
  int run();

 private:
  /// Of the model and all data sets, before anything is read with them.
  void check_vocabularies();
  void restore();
  void build_trainer();
  void warm_start(const RestoreCheckpointConfig& config);
  /// Another run's vocabularies are this run's: else an error, or a warning if none are verified.
  void check_warm_start(const CheckpointReader& from) const;
  void write_run_files();
  void train_step();
  /// Ranks look at each other.
  void check_ranks();
  void after_update(const StepResult& result, const BadStep& step, const HostArrays& batch);
  std::string run_train_actions(const std::map<std::string, double>& values);
  [[noreturn]] void stop_on_numbers(const std::string& what);
  /// For an update that left numbers not finite; `where`: in which tensors, as this rank knows.
  [[noreturn]] void stop_on_ruin(const std::string& where, int64_t update);
  /// Into the report goes the batch of the last step.
  void blame_last_batch(const std::string& what, double loss);
  void summarize();
  bool due(int64_t period) const;
  bool save_due() const;
  bool evaluate();  // false: asked to stop on the way
  /// Why what there is must not take the place of an older checkpoint; empty: it may.
  std::string why_not_saved();
  /// Saves, or says why not and leaves it to the next step.
  void save_if_good();
  void save(bool wait);
  int saved_run_again(const std::string& reason);
  std::string loss_per_token() const;
  std::string detail() const;

  /// All ranks stop at the same step, whichever was asked to.
  std::optional<std::string> stop_reason();

  TrainConfig config_;
  Ranks& ranks_;
  FolderLock lock_;
  StopRequests stop_;
  data::ProviderPtr train_provider_, train_eval_provider_, infer_eval_provider_;
  Mesh mesh_;
  Sharding sharding_;
  Sharding::Use on_the_mesh_;
  data::Shard train_shard_, train_eval_shard_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<CheckpointManager> checkpoints_;
  BatchSourceFn batch_source_;
  std::unique_ptr<data::BatchSource> batches_;
  std::unique_ptr<TrainEvaluator> train_evaluator_;
  std::unique_ptr<InferenceEvaluator> infer_evaluator_;
  std::unique_ptr<Summaries> summaries_;
  std::unique_ptr<Progress> progress_;
  RunState state_;
  bool resumed_ = false;  // from a checkpoint of its own
  int64_t total_steps_ = 0, saved_step_ = -1;
  bool save_overdue_ = false;
  std::string ruined_;      // a parameter that an update left not finite
  std::string stop_early_;  // an action's reason
  double started_ = 0, window_started_ = 0, ready_seconds_ = 0;
  int64_t window_first_step_ = 0;
  Metrics last_step_;
  NumbersReport bad_steps_;
  Pace pace_;
  std::optional<std::pair<BadStep, HostArrays>> last_batch_, batch_before_;  // for a report
};

/// The feature converter of a model: the one its configuration names, or the model's own kind.
data::FeatureConverterPtr converter_for(const ConfiguredModel& model,
                                        const data::ConverterOptions& options);

}  // namespace quintet
