#include "apps/evaluate/loss_evaluator.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/evaluate/step_timing.h"
#include "runtime/base/clock.h"

namespace quintet {
namespace {

/// T5X's get_training_eval_datasets: a small set is read again, epoch by epoch, until there are
/// enough whole batches.
std::vector<HostArrays> read_batches(const data::Provider& provider,
                                     const data::DatasetConfig& dataset,
                                     const data::FeatureConverterPtr& converter,
                                     const data::Shard& shard, int64_t eval_steps) {
  std::vector<HostArrays> batches;
  data::Batches source(provider, dataset, converter,
                       {.epochs = eval_steps * dataset.batch_size,
                        .repeat_rows = true,
                        .prefetch = 0,
                        .shard = shard});
  while (static_cast<int64_t>(batches.size()) < eval_steps) {
    auto batch = source.next();
    QT_CHECK_AS(ExitCode::kData, batch.has_value(),
                "task '{}', split '{}': no examples to evaluate on", provider.name(),
                dataset.split);
    batches.push_back(std::move(batch->features));
  }
  return batches;
}

bool has_split(const data::Task& task, const std::string& split) {
  const auto splits = task.splits();
  return std::find(splits.begin(), splits.end(), split) != splits.end();
}

/// MessagePack: numbers keep their bits.
std::string to_bytes(const std::vector<Metrics>& steps) {
  nlohmann::json all = nlohmann::json::array();
  for (const Metrics& step : steps) {
    nlohmann::json& metrics = all.emplace_back(nlohmann::json::object());
    for (const auto& [name, metric] : step)
      metrics[name] = {metric.total, metric.count, metric.per_step};
  }
  const std::vector<uint8_t> bytes = nlohmann::json::to_msgpack(all);
  return {bytes.begin(), bytes.end()};
}

/// Adds step i, which rank i % peers.size has taken, in the order of the steps.
Metrics sum_of(const std::vector<Metrics>& own, size_t steps, const data::Peers& peers) {
  Metrics sums;
  std::vector<nlohmann::json> all;
  for (const std::string& bytes : peers.gather(to_bytes(own)))
    all.push_back(nlohmann::json::from_msgpack(bytes));
  for (size_t i = 0; i < steps; ++i) {
    Metrics step;
    for (const auto& [name, metric] : all[i % all.size()].at(i / all.size()).items())
      step[name] = {metric[0].get<double>(), metric[1].get<double>(), metric[2].get<bool>()};
    merge_step(sums, step);
  }
  return sums;
}

}  // namespace

LossEvaluator::LossEvaluator(const data::Provider& provider, const data::DatasetConfig& dataset,
                             const data::FeatureConverterPtr& converter, const data::Shard& shard,
                             int64_t eval_steps, int64_t devices,
                             const std::function<void(const std::string&)>& say)
    : batch_size_(dataset.batch_size), devices_(devices) {
  const bool is_mixture =
      provider.tasks().size() > 1 || provider.tasks()[0]->name() != provider.name();
  for (const data::Task* task : provider.tasks()) {
    if (has_split(*task, dataset.split))
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

std::optional<TaskMetrics> LossEvaluator::run(
    const std::function<Metrics(const HostArrays& batch)>& eval_fn,
    const std::function<bool()>& stop, const data::Peers& peers) const {
  TaskMetrics result;
  for (const auto& [task, batches] : batches_) {
    std::vector<Metrics> own;
    const double begin = now_seconds();
    for (int rank = 0; const HostArrays& batch : batches) {
      if (rank == 0 && stop()) return std::nullopt;
      if (rank == peers.rank) own.push_back(eval_fn(batch));
      rank = (rank + 1) % peers.size;
    }
    const Metrics sums = sum_of(own, batches.size(), peers);
    const auto steps = static_cast<int64_t>(batches.size());
    result[task] = timing_of({now_seconds() - begin, steps, batch_size_, devices_}, sums);
    for (const auto& [name, metric] : sums) result[task][name] = metric.value();
  }
  return result;
}

}  // namespace quintet
