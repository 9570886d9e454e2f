#pragma once
// The arguments of eval_script.evaluate (t5x/eval.py), by T5X's names.

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "apps/config/checkpoint_config.h"
#include "apps/config/evaluator_config.h"
#include "data/batches/batches.h"
#include "kernels/decode_attention/cache_type.h"
#include "kernels/prepacked_matmul/prepacked_matmul.h"
#include "models/configurables.h"
#include "runtime/configurables/configurables.h"

namespace quintet {

inline constexpr const char* kTrainEvalDatasets = "t5x.utils.get_training_eval_datasets";

/// The arguments of eval_script.evaluate.
struct EvaluationConfig {
  std::shared_ptr<ConfiguredModel> model;
  data::DatasetConfig dataset;
  RestoreCheckpointConfig restore;
  EvaluatorConfig evaluator;
  std::filesystem::path output_dir;  // empty: nothing is written
  PartitionerConfig partitioner;  // its rules are written down; num_partitions ranks hold a model
  std::string config_text;        // written to output_dir/config.gin
  int64_t train_eval_steps = 0;   // batches of training_evaluator_cls, before decoding; 0: none
  bool follow = false;            // the checkpoints of a run that trains, as they appear
  bool verify_vocabs = true;      // the task has the model's vocabularies
  std::optional<WeightType> weights = {};  // none: as the checkpoint has them
  CacheType cache_type = CacheType::native;
};

/// "t5x.eval.evaluate" with `run` as its body.
void register_evaluation(gin::Registry& registry,
                         std::function<gin::Value(const gin::Arguments&)> run);
EvaluationConfig evaluation_config_from(const gin::Arguments& args);

}  // namespace quintet
