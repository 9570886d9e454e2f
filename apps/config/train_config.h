#pragma once
// The arguments of train_script.train (t5x/train.py), by T5X's names and with its defaults.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "apps/config/actions.h"
#include "apps/config/checkpoint_config.h"
#include "apps/config/evaluator_config.h"
#include "data/batches/batches.h"
#include "models/configurables.h"
#include "models/fp8.h"
#include "runtime/configurables/configurables.h"
#include "runtime/trainer/trainer.h"

namespace quintet {

struct TrainConfig {
  std::shared_ptr<ConfiguredModel> model;
  data::DatasetConfig train_dataset;
  std::optional<data::DatasetConfig> train_eval_dataset;  // teacher-forced loss
  std::optional<data::DatasetConfig> infer_eval_dataset;  // decoding and the task's metrics
  CheckpointConfig checkpoint;
  PartitionerConfig partitioner;
  TrainerOptions trainer;
  TransformerEngineConfig fp8;  // te_config_cls, of T5X's fork at NVIDIA
  std::filesystem::path model_dir;
  int64_t total_steps = 0;                // batches, counted from the model's first step
  std::optional<int64_t> relative_steps;  // instead: beyond the step that the run starts from
  int64_t eval_steps = 0;                 // batches of a teacher-forced evaluation
  int64_t eval_period = 0;                // steps between evaluations; 0: only at the end
  int64_t stats_period = 0;               // steps between summaries; 0: eval_period
  std::optional<int64_t> random_seed;     // none: from the clock
  bool run_eval_before_training = false;
  EvaluatorConfig evaluator;
  Actions actions;
  bool verify_vocabs = true;  // verifies_vocabs(): tasks have the model's vocabularies
  std::string config_text;    // goes into config.gin
};

/// From the arguments of a call; every name of T5X's train() is known, those without meaning here are
/// accepted. Throws usage errors with file, line and parameter.
TrainConfig train_config_from(const gin::Arguments& args);

/// "t5x.train.train" with `run` as its body.
void register_train(gin::Registry& registry, std::function<gin::Value(const gin::Arguments&)> run);

}  // namespace quintet
