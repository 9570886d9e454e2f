#pragma once
// seqio.Evaluator: feeds the evaluation sets of a task or mixture to a model, once prepared and as
// often as there are checkpoints, and judges what comes back by each task's metrics.
//
//   Evaluator evaluator(provider, dataset, converter_of, {.num_examples = 1000});
//   auto outputs = evaluator.evaluate({.predict = .., .score = ..}, stop);
//   JsonLogger(log_dir).write(step, outputs->front());
//
// Knows no model: predictions and scores come from two functions.

#include <memory>

#include "data/batches/batches.h"
#include "data/examples/peers.h"

namespace quintet::data {

/// The arguments of seqio.Evaluator that are not the data set's.
struct EvaluatorOptions {
  std::optional<int64_t> num_examples = {};  // the first so many of each task; none: all
  bool shuffle = false;                      // before these are taken, once
  std::string target_field_name = "targets";
  std::function<void(const Task&, int64_t done, int64_t total)> progress = {};  // in examples
  Peers peers = {};  // that share the batches; all of them have all outputs and metrics
};

/// What a model makes of the rows of a batch that hold examples.
struct Predictions {
  std::vector<Tokens> tokens;
  AuxValues aux_values = {};  // for metrics that want them
};
struct ModelFns {
  std::function<Predictions(const Batch&)> predict;
  std::function<Scores(const Batch&)> score;  // log-likelihood of the targets
};

/// What became of one task's evaluation set, by example. `outputs` and `predictions` are empty if
/// no metric wants predictions, `scores` if none wants scores, `aux_values` if none wants them.
struct TaskOutputs {
  const Task* task = nullptr;
  const std::vector<Example>* examples = nullptr;  // the evaluator's
  const Answers* targets = nullptr;                // postprocessed; the evaluator's
  std::vector<Tokens> tokens;                      // of predictions; kept for metric objects
  int64_t target_length = 0;                       // of the model's rows of targets
  std::vector<std::string> outputs;                // decoded text
  Answers predictions;                             // outputs, postprocessed
  Scores scores;
  AuxValues aux_values;
  MetricValues metrics;
};

class Evaluator {
 public:
  using ConverterOf = std::function<FeatureConverterPtr(const Lengths& task_feature_lengths)>;
  /// Reads, preprocesses and postprocesses the targets of the tasks that have the split and a
  /// metric; says on stderr which are left out. Where `dataset` gives no length for a feature, it
  /// is the longest of all tasks. Throws a usage error if packing is asked for.
  Evaluator(const Provider& provider, const DatasetConfig& dataset, const ConverterOf& converter_of,
            const EvaluatorOptions& options = {});
  ~Evaluator();

  /// Task by task; asks the model only for what metrics want. Nothing if `stop` became true on the
  /// way, which must be so on all peers or none. Throws kData naming the task where a metric cannot judge, a usage error if two metrics of
  /// a task give values of the same name.
  std::optional<std::vector<TaskOutputs>> evaluate(const ModelFns& model,
                                                   const std::function<bool()>& stop) const;
  /// Those that are evaluated.
  std::vector<const Task*> tasks() const;

 private:
  struct TaskSet;
  bool run_model(const TaskSet& set, const ModelFns& model, const std::function<bool()>& stop,
                 TaskOutputs& outputs) const;

  std::string target_field_name_;
  Peers peers_;
  std::function<void(const Task&, int64_t done, int64_t total)> progress_;
  DatasetConfig dataset_;
  FeatureConverterPtr converter_;
  std::vector<std::unique_ptr<TaskSet>> sets_;
};

/// The text that a feature was tokenized from (<name>_pretokenized), else its decoded ids.
std::string feature_text(const Example& example, const Features& features, const std::string& name);

}  // namespace quintet::data
