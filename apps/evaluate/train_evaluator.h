#pragma once
// Teacher-forced evaluation: T5X's training_eval, for each task of a mixture and for the mixture.
//
//   TrainEvaluator evaluator(provider, dataset, converter, shard, eval_steps, say);
//   auto metrics = evaluator.run(model, stop);                // {"my_task": {"loss": ...}}

#include <functional>
#include <optional>

#include "apps/config/actions.h"
#include "data/batches.h"
#include "models/base_model.h"

namespace quintet {

class TrainEvaluator {
 public:
  /// Reads up to eval_steps batches a task and keeps its shard's rows in memory. An example counts
  /// at most once, also when the set is smaller than that. As in T5X, a mixture's tasks that lack
  /// the split are skipped, each with a line to `say`; a mixture of which none has it, and a single
  /// task without it, are usage errors.
  TrainEvaluator(const data::Provider& provider, const data::DatasetConfig& dataset,
                 const data::FeatureConverterPtr& converter, const data::Shard& shard,
                 int64_t eval_steps, const std::function<void(const std::string&)>& say);
  /// Nothing if `stop` became true on the way.
  std::optional<TaskMetrics> run(const BaseModel& model, const std::function<bool()>& stop) const;

 private:
  std::vector<std::pair<std::string, std::vector<HostArrays>>> batches_;  // by task
};

}  // namespace quintet
