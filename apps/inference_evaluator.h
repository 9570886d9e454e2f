#pragma once
// seqio.Evaluator: decodes an evaluation set, compares with the targets by each task's metrics, logs.
//
//   InferenceEvaluator evaluator(provider, dataset, model, config);
//   std::optional<TaskMetrics> metrics = evaluator.run(step, [&] { return stop.reason().has_value(); });

#include <functional>
#include <memory>
#include <optional>

#include "apps/actions.h"
#include "data/batches.h"
#include "models/configurables.h"

namespace quintet {

/// The arguments of seqio.Evaluator that gin files bind.
struct InferenceEvaluatorConfig {
  std::optional<int64_t> num_examples;             // none: all
  std::optional<int64_t> write_n_results;          // of JSONLogger; none: all
  bool json_logger = true;                         // whether logger_cls has JSONLogger
  std::filesystem::path log_dir;                   // empty: no files
};

/// What the model made of one example.
struct Prediction {
  std::string input, target, prediction;
  double score = 0;
};

class InferenceEvaluator {
 public:
  /// Reads and preprocesses the evaluation sets of the provider's tasks once.
  InferenceEvaluator(const data::Provider& provider, const data::DatasetConfig& dataset,
                     std::shared_ptr<const ConfiguredModel> model, InferenceEvaluatorConfig config);
  ~InferenceEvaluator();

  /// Task -> metric -> value, written under log_dir as seqio's JSONLogger does. Nothing if `stop`
  /// became true on the way.
  std::optional<TaskMetrics> run(int64_t step, const std::function<bool()>& stop);
  /// The predictions of the last run, by task.
  const std::map<std::string, std::vector<Prediction>>& predictions() const;

 private:
  struct TaskSet;
  void log(const TaskSet& set, int64_t step, const std::map<std::string, double>& metrics) const;

  std::shared_ptr<const ConfiguredModel> model_;
  InferenceEvaluatorConfig config_;
  std::vector<std::unique_ptr<TaskSet>> sets_;
  std::map<std::string, std::vector<Prediction>> predictions_;
};

/// seqio.Evaluator and its loggers.
void register_inference_evaluator(gin::Registry& registry);

}  // namespace quintet
