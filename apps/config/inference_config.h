#pragma once
// The arguments of infer_script.infer (t5x/infer.py), by T5X's names.

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "apps/config/checkpoint_config.h"
#include "apps/flags/decode_flags.h"
#include "data/batches/batches.h"
#include "data/evaluation/inference_lines.h"
#include "data/workers/worker_functions.h"
#include "kernels/decode_attention/cache_type.h"
#include "kernels/prepacked_matmul/prepacked_matmul.h"
#include "models/configurables.h"
#include "runtime/configurables/configurables.h"

namespace quintet {

/// The arguments of infer_script.infer.
struct InferenceConfig {
  std::string mode = "predict";  // or score, predict_with_aux
  std::shared_ptr<ConfiguredModel> model;
  data::DatasetConfig dataset;
  RestoreCheckpointConfig restore;
  std::filesystem::path output_dir;
  int64_t checkpoint_period = 100;  // batches of a chunk
  data::ShardInfo shard;            // of the data set, for several jobs
  bool merge_chunked_results = true;
  bool checkpoint_ds_iter =
      true;  // false: what was read is read again, but chunks that are there stay
  std::string output_vocab_feature_name = "targets", file_extension = "jsonl";
  data::InferenceLineOptions line;
  data::WorkersPtr write_fn, merge_fn;  // the user's own; null: T5X's
  DecodeFlags decode;                   // over the model's decode function
  std::optional<WeightType> weights;    // of networks that decode on the CPU; none: as they are
  CacheType cache_type = CacheType::native;
  bool verify_vocabs = true;      // the task has the model's vocabularies
  PartitionerConfig partitioner;  // its rules are written down; num_partitions ranks hold a model
  std::string config_text;        // written to output_dir/config.gin

  /// Throws a usage error naming the argument.
  void check() const;
};

/// infer, write_inferences_to_file and create_task_from_tfexample_file of t5x.infer; `run` is the
/// body of infer.
void register_inference(gin::Registry& registry,
                        std::function<gin::Value(const gin::Arguments&)> run);
InferenceConfig inference_config_from(const gin::Arguments& args);
/// Who writes lines and joins chunks, of what is bound of infer.
void set_writers(InferenceConfig& config, const gin::Config& bound);

}  // namespace quintet
