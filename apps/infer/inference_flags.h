#pragma once
// What `quintet infer` may be told, and the configuration that it comes to for a trained run.

#include <optional>
#include <string>

#include "apps/config/inference_config.h"
#include "apps/flags/compute_flags.h"
#include "apps/flags/decode_flags.h"
#include "apps/flags/launch_flags.h"
#include "apps/flags/partitions_flag.h"
#include "apps/flags/quantize_flag.h"
#include "apps/flags/result_format.h"
#include "apps/model/trained_dataset.h"
#include "apps/process/ranks.h"

namespace quintet {

struct InferenceFlags {
  TrainedDatasetFlags set;
  std::string input, inputs_key = "inputs", targets_key = "targets", mode = "predict", output_dir;
  int64_t checkpoint_period = 100, num_shards = 1;
  std::optional<int64_t> shard_id;
  data::InferenceLineOptions line;
  DecodeFlags decode;
  PartitionsFlag partitions;
  QuantizeFlag quantize;
  CacheFlag cache;
  ComputeFlags compute;
  ResultFormat format;
  LaunchFlags launch;
  RankFlags ranks;

  void add_to(CLI::App& app);
};

/// `config`, whose answers are as `decode` and `cache` say. Throws a usage error where there are none.
InferenceConfig with_decode(InferenceConfig config, const DecodeFlags& decode,
                            const CacheFlag& cache);
/// Inference with the model of a run on its evaluation set, a task or the files of --input. Throws a
/// usage error if there is no data set, or the model has no vocabulary to read files with.
InferenceConfig inference_config_of(const TrainedModel& trained, const InferenceFlags& flags);

}  // namespace quintet
