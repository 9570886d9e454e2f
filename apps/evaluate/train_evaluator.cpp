#include "apps/evaluate/train_evaluator.h"

#include <algorithm>

namespace quintet {
namespace {

std::vector<HostArrays> read_batches(const data::Provider& provider,
                                     const data::DatasetConfig& dataset,
                                     const data::FeatureConverterPtr& converter,
                                     const data::Shard& shard, int64_t limit) {
  std::vector<HostArrays> batches;
  data::Batches source(provider, dataset, converter, {.epochs = 1, .prefetch = 0, .shard = shard});
  while (static_cast<int64_t>(batches.size()) < limit) {
    auto batch = source.next();
    if (!batch) break;
    batches.push_back(std::move(batch->features));
  }
  QT_CHECK_AS(ExitCode::kData, !batches.empty(),
              "task '{}', split '{}': no examples to evaluate on", provider.name(), dataset.split);
  return batches;
}

bool has_split(const data::Task& task, const std::string& split) {
  const auto splits = task.splits();
  return std::find(splits.begin(), splits.end(), split) != splits.end();
}

}  // namespace

TrainEvaluator::TrainEvaluator(const data::Provider& provider, const data::DatasetConfig& dataset,
                               const data::FeatureConverterPtr& converter, const data::Shard& shard,
                               int64_t eval_steps,
                               const std::function<void(const std::string&)>& say) {
  const bool is_mixture =
      provider.tasks().size() > 1 || provider.tasks()[0]->name() != provider.name();
  for (const data::Task* task : provider.tasks()) {
    if (!is_mixture || has_split(*task, dataset.split))
      batches_.emplace_back(task->name(),
                            read_batches(*task, dataset, converter, shard, eval_steps));
    else
      say(fmt::format("teacher-forced evaluation: task '{}' has no split '{}' and is skipped",
                      task->name(), dataset.split));
  }
  if (is_mixture)
    batches_.emplace_back(provider.name(),
                          read_batches(provider, dataset, converter, shard, eval_steps));
}

std::optional<TaskMetrics> TrainEvaluator::run(const BaseModel& model,
                                               const std::function<bool()>& stop) const {
  TaskMetrics result;
  for (const auto& [task, batches] : batches_) {
    Metrics sums;
    for (const HostArrays& batch : batches) {
      if (stop()) return std::nullopt;
      merge_step(sums, model.eval_fn(batch));
    }
    for (const auto& [name, metric] : sums) result[task][name] = metric.value();
  }
  return result;
}

}  // namespace quintet
