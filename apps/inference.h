#pragma once
// Predictions or scores of a data set, written as JSON lines: t5x/infer.py's infer.
//
//   return run_inference(config, ranks, provider_of);       // 0, or 75: stopped, run again
//
// For each task, under output_dir:
//   tmp-<task>-SSSSS-of-NNNNN/                       while it runs
//     <task>-<mode>.jsonl-SSSSS-of-NNNNN-chunkCCCCC  of checkpoint_period batches, then ...COMPLETED
//     input.ckpt                                     where the next chunk begins
//   <task>-<mode>.jsonl-SSSSS-of-NNNNN               all chunks in order, then ...COMPLETED
// A run that was killed goes on after its last chunk and ends with the same bytes; so do more
// ranks, which take a chunk's batches by turns. With several checkpoints each has a folder
// checkpoint_<step>.

#include "apps/ranks.h"
#include "apps/train_loop.h"
#include "data/evaluation/inference_lines.h"
#include "kernels/packed_matmul/packed_matmul.h"

namespace quintet {

/// The arguments of infer_script.infer.
struct InferConfig {
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
  std::optional<WeightType> weights;  // of networks that decode on the CPU; none: as they are
  bool verify_vocabs = true;          // the task has the model's vocabularies
  std::string config_text;            // written to output_dir/config.gin

  /// Throws a usage error naming the argument.
  void check() const;
};

/// infer, write_inferences_to_file and create_task_from_tfexample_file of t5x.infer; `run` is the
/// body of infer.
void register_infer(gin::Registry& registry, std::function<gin::Value(const gin::Arguments&)> run);
InferConfig infer_config_from(const gin::Arguments& args);

/// All ranks call it.
int run_inference(const InferConfig& config, const Ranks& ranks,
                  const TrainLoop::ProviderOf& provider_of);

}  // namespace quintet
