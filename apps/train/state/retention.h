#pragma once
// Which checkpoints of a run are removed when one was saved: T5X's Checkpointer and SaveBestCheckpointer.
//
//   options.choose_removed = [..](steps, warnings) { return removed(retention, steps, metrics); };

#include <cstdint>
#include <map>
#include <vector>

#include "apps/config/checkpoint_config.h"
#include "checkpoint/checkpoint.h"

namespace quintet {

/// Of `steps`, whose last was just saved and always stays, those that go by T5X's rules: all but the newest
/// `keep`, or, by a metric, but the best `keep` of the others; of equals the oldest go first. Steps that
/// force_keep_period divides stay and do not count; so do those without the metric if
/// keep_checkpoints_without_metrics, else they are the worst. `metrics`: by step.
std::vector<int64_t> removed_steps(const SaveCheckpointConfig& config, std::vector<int64_t> steps,
                                   const std::map<int64_t, double>& metrics);

/// `keep`, or the choice by a metric in metrics.jsonl of `model_dir`.
void set_retention(CheckpointOptions& options, const SaveCheckpointConfig& config,
                   const std::filesystem::path& model_dir);

}  // namespace quintet
