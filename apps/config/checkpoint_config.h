#pragma once
// t5x.utils' checkpoint configurations, as gin files bind them.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/gin/registry/registry.h"

namespace quintet {

/// t5x.utils.SaveCheckpointConfig. Parameters are saved as `dtype`, optimizer state always in float32.
struct SaveCheckpointConfig {
  std::string dtype = "float32";  // or "bfloat16", which a resumed run cannot continue exactly
  std::optional<int64_t> period;  // steps; none: only at the end
  std::vector<int64_t> checkpoint_steps;  // further steps to save at
  std::optional<int64_t> keep;            // newest ones; none: all
};

/// A rule of assignment_map: names of the model that match the pattern are read from the name that the
/// replacement gives (\1 is the first group), or from nowhere.
struct AssignmentRule {
  std::string pattern;
  std::optional<std::string> replacement;
};

/// t5x.utils.RestoreCheckpointConfig: where a run without checkpoints of its own starts from.
struct RestoreCheckpointConfig {
  std::vector<std::string> path;  // one but for mode 'all'
  std::string mode = "latest";  // of the folder; 'specific': path is a checkpoint; 'all': every one
  std::vector<AssignmentRule> assignment_map;
  bool strict = true;                // the checkpoint may hold nothing that the model lacks
  bool fallback_to_scratch = false;  // what it lacks keeps its initial value
  int64_t upcycled_experts =
      0;  // contrib.moe's UpcycleCheckpointer: experts that one array becomes
};

/// t5x.utils.CheckpointConfig.
struct CheckpointConfig {
  std::optional<SaveCheckpointConfig> save;
  std::optional<RestoreCheckpointConfig> restore;
};

void register_checkpoint_configs(gin::Registry& registry);

}  // namespace quintet
