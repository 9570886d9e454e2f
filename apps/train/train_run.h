#pragma once
// What the parts of a training run share: its configuration, ranks, data sets, mesh, and what
// restore() makes of them.

#include <memory>
#include <string>

#include "apps/config/train_config.h"
#include "apps/input/run_data.h"
#include "apps/process/progress.h"
#include "apps/process/ranks.h"
#include "apps/process/signals.h"
#include "apps/train/state/checkpoint_copies.h"
#include "apps/train/state/device_snapshot.h"
#include "apps/train/state/run_state.h"
#include "checkpoint/checkpoint.h"
#include "runtime/base/files/folder_lock.h"
#include "runtime/mesh/mesh.h"
#include "runtime/mesh/sharding.h"
#include "runtime/metrics/summaries.h"

namespace quintet {

struct TrainRun {
  /// Takes the lock of the model directory and reads the data sets' descriptions. Throws usage errors
  /// for batches that ranks and microbatches do not divide, and for vocabularies that do not fit.
  TrainRun(TrainConfig config, Ranks& ranks, const ProviderOf& provider_of);

  int64_t step() const { return trainer->step(); }
  /// Whether something that is done every `period` steps, counted from the run's first, is to be done
  /// now; at the last step everything is. 0: only then.
  bool due(int64_t period) const;
  /// The metric that is a target token's mean loss: a normalised loss is a mean already, a summed one
  /// becomes one.
  std::string loss_per_token() const;

  TrainConfig config;
  Ranks& ranks;
  FolderLock lock;
  StopRequests stop;
  data::ProviderPtr train_provider, train_eval_provider, infer_eval_provider;
  Mesh mesh;
  Sharding sharding;
  Sharding::Use on_the_mesh;
  data::Shard train_shard, train_eval_shard;

  // By restore().
  std::unique_ptr<Trainer> trainer;
  std::unique_ptr<CheckpointCopies> copies;  // none: nobody asked for them
  DeviceSnapshot snapshot;                   // of a GPU's arrays, which `checkpoints` writes
  std::unique_ptr<CheckpointManager> checkpoints;
  std::unique_ptr<data::BatchSource> batches;
  RunState state;
  bool resumed = false;  // from a checkpoint of its own
  int64_t total_steps = 0, saved_step = -1;
  std::string stop_early;  // an action's reason

  std::unique_ptr<Summaries> summaries;  // by write_run_files()
  std::unique_ptr<Progress> progress;    // by TrainLoop::run()
};

}  // namespace quintet
