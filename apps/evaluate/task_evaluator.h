#pragma once
// The data folder's Evaluator with a model: T5X's InferenceEvaluator.
//
//   TaskEvaluator evaluator(provider, dataset, model, config);
//   std::optional<TaskMetrics> metrics =
//       evaluator.run(step, [&] { return stop.reason().has_value(); });

#include "apps/config/actions.h"
#include "apps/config/evaluator_config.h"
#include "apps/model/quantized_model.h"
#include "data/evaluation/evaluator.h"
#include "kernels/decode_attention/cache_type.h"
#include "models/configurables.h"
#include "runtime/metrics/summaries.h"

namespace quintet {

/// Metrics of a step for JSONLogger's neighbours: numbers to metrics.jsonl in any case, all values
/// to event files and as lines ("task/metric at step 3: 0.500") to `say` if these are asked for.
void log_metrics(const EvaluatorConfig& config, int64_t step,
                 const std::vector<data::TaskOutputs>& outputs, Summaries& summaries,
                 const std::function<void(const std::string&)>& say);

class TaskEvaluator {
 public:
  /// Reads and preprocesses the evaluation sets of the provider's tasks once. Throws a usage error for a
  /// decode function that is none.
  TaskEvaluator(const data::Provider& provider, const data::DatasetConfig& dataset,
                std::shared_ptr<const ConfiguredModel> model, EvaluatorConfig config);

  /// On a mesh every rank, or group of weights.ranks, decodes its share of the batches (options.peers), and all
  /// have the same metrics. Parameters are gathered one by one while they are packed; all at a time on a GPU
  /// that has the model alone. Task -> metric -> value, written under log_dir as seqio's JSONLogger does.
  /// Nothing if `stop` became true on the way. Predictions are made with `weights` and caches of `cache_type`; scores
  /// are float32's, so a task that wants them with other weights, or nothing but them with other caches, is a usage error.
  std::optional<TaskMetrics> run(int64_t step, const std::function<bool()>& stop,
                                 const Weights& weights = {},
                                 CacheType cache_type = CacheType::native);
  /// Of the last run.
  const std::vector<data::TaskOutputs>& outputs() const { return outputs_; }

 private:
  std::shared_ptr<const ConfiguredModel> model_;
  EvaluatorConfig config_;
  data::Evaluator evaluator_;
  bool decodes_, scores_;  // whether a metric wants that
  std::vector<data::TaskOutputs> outputs_;
};

}  // namespace quintet
