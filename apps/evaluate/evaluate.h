#pragma once
// Metrics of a task over checkpoints: t5x/eval.py's evaluate, and `quintet eval`.

#include <filesystem>

#include "apps/evaluate/inference_evaluator.h"
#include "apps/train/train_loop.h"

namespace quintet {

/// The arguments of eval_script.evaluate.
struct EvaluateConfig {
  std::shared_ptr<ConfiguredModel> model;
  data::DatasetConfig dataset;
  RestoreCheckpointConfig restore;
  InferenceEvaluatorConfig inference_evaluator;
  std::filesystem::path output_dir;        // empty: nothing is written
  bool verify_vocabs = true;               // the task has the model's vocabularies
  std::optional<WeightType> weights = {};  // none: as the checkpoint has them
};

/// "t5x.eval.evaluate" with `run` as its body.
void register_evaluate(gin::Registry& registry,
                       std::function<gin::Value(const gin::Arguments&)> run);
EvaluateConfig evaluate_config_from(const gin::Arguments& args);

/// Evaluates every checkpoint that `restore` means, in order of step, and prints a JSON object a line on
/// stdout: {"step", "task", "examples", metrics...}; `samples` predictions a task beside the right answers
/// on stderr. Returns an exit code, 75 if asked to stop.
int evaluate(EvaluateConfig config, const TrainLoop::ProviderOf& provider_of, int64_t samples);

}  // namespace quintet
