#pragma once
// What `quintet eval` may be told, and the configuration that it comes to for a trained run.

#include <string>

#include "apps/config/evaluation_config.h"
#include "apps/flags/compute_flags.h"
#include "apps/flags/launch_flags.h"
#include "apps/flags/partitions_flag.h"
#include "apps/flags/quantize_flag.h"
#include "apps/flags/result_format.h"
#include "apps/model/trained_dataset.h"
#include "apps/process/ranks.h"

namespace quintet {

struct EvaluationFlags {
  TrainedDatasetFlags set;
  std::string output_dir;
  int64_t samples = 0, num_examples = 0;
  bool follow = false;
  PartitionsFlag partitions;
  QuantizeFlag quantize;
  CacheFlag cache;
  ComputeFlags compute;
  LaunchFlags launch;
  ResultFormat format;
  RankFlags ranks;

  void add_to(CLI::App& app);
};

/// Evaluation of a run on its evaluation set, or a task. Throws a usage error if there is none.
EvaluationConfig evaluation_config_of(const TrainedModel& trained, const EvaluationFlags& flags);

}  // namespace quintet
