#pragma once
// Teacher-forced evaluation: T5X's training_eval, for each task of a mixture and for the mixture.
//
//   LossEvaluator evaluator(provider, dataset, converter, shard, eval_steps, devices, say);
//   auto metrics = evaluator.run(eval_fn, stop);              // {"my_task": {"loss": ...}}

#include <functional>
#include <optional>

#include "apps/config/actions.h"
#include "data/batches/batches.h"
#include "data/examples/peers.h"
#include "models/base_model.h"

namespace quintet {

class LossEvaluator {
 public:
  /// Reads eval_steps whole batches a task and keeps its shard's rows in memory; as in T5X, a set that
  /// is smaller is read again until they are full, and a task without the split is skipped, with a
  /// line to `say`. A mixture of which no task has it is a usage error. `devices` that compute
  /// together are the cores of timing/.
  LossEvaluator(const data::Provider& provider, const data::DatasetConfig& dataset,
                const data::FeatureConverterPtr& converter, const data::Shard& shard,
                int64_t eval_steps, int64_t devices,
                const std::function<void(const std::string&)>& say);
  /// With what `eval_fn` makes of a batch, as BaseModel's does. Nothing if `stop` became true on the way, which must be
  /// so on all peers or none. `peers` take the batches by turns, and all have the metrics that one alone would.
  std::optional<TaskMetrics> run(const std::function<Metrics(const HostArrays& batch)>& eval_fn,
                                 const std::function<bool()>& stop,
                                 const data::Peers& peers = {}) const;

 private:
  std::vector<std::pair<std::string, std::vector<HostArrays>>> batches_;  // by task
  int64_t batch_size_, devices_;
};

}  // namespace quintet
