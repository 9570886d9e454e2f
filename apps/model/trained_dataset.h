#pragma once
// What eval and infer may be told about a trained run: which checkpoints, which data.

#include "apps/config/checkpoint_config.h"
#include "apps/model/trained_model.h"
#include "data/batches/batches.h"

namespace CLI {
class App;
}

namespace quintet {

/// What the run was evaluated by decoding on, or trained on (`to_train`: the other way round); none: its configuration
/// says neither.
std::optional<data::DatasetConfig> dataset_of_run(const gin::Config& config, bool to_train = false);
/// --adapter, the same for every verb that reads a model.
void add_adapter_flag(CLI::App& app, std::string& adapter);

struct TrainedDatasetFlags {
  std::string model_dir, adapter, checkpoint = "latest", task, split;
  int64_t batch_size = 0;

  void add_to(CLI::App& app, bool is_positional = true);
  /// The evaluation set of the run's configuration, changed as the flags say. Throws a usage error
  /// of `verb` if there is none, unless the caller has a task of its own.
  data::DatasetConfig dataset_of(const TrainedModel& trained, const std::string& verb,
                                 bool has_task = false) const;
  RestoreCheckpointConfig restore_of(const TrainedModel& trained) const;
  /// Whether the run was trained on a task that must have the model's vocabularies.
  bool verifies_vocabs(const TrainedModel& trained) const;
};

}  // namespace quintet
