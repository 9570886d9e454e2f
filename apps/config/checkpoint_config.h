#pragma once
// t5x.utils' checkpoint configurations, as gin files bind them.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/gin/registry/registry.h"

namespace quintet {

/// What T5X's SaveBestCheckpointer and OrbaxCheckpointManagerInterface are told of the checkpoints to keep.
struct BestCheckpoints {
  std::string metric;        // "<run>/<name>", as in metrics.jsonl; empty: the newest are kept
  std::string mode = "max";  // or "min"
  bool keep_checkpoints_without_metrics = true;
  int64_t force_keep_period = 0;  // steps that it divides stay; 0: none
};

/// t5x.utils.SaveCheckpointConfig. Parameters are saved as `dtype`, optimizer state always in float32.
struct SaveCheckpointConfig {
  std::string dtype = "float32";  // or "bfloat16", which a resumed run cannot continue exactly
  std::optional<int64_t> period;  // steps; none: only at the end
  std::vector<int64_t> checkpoint_steps;  // further steps to save at
  std::optional<int64_t> keep;            // newest ones, or best ones and the newest; none: all
  BestCheckpoints best;
  std::vector<std::string> copies = {};  // formats that each is written in besides: "t5x", "hf"
};

/// A rule of assignment_map: names of the model that match the pattern are read from the name that the
/// replacement gives (\1 is the first group), or from nowhere.
struct AssignmentRule {
  std::string pattern;
  std::optional<std::string> replacement;
};

/// t5x.state_utils.apply_assignment_map.
struct AssignmentMap {
  std::string where = "assignment_map";  // for messages
  std::vector<AssignmentRule> rules;     // a name takes the first that matches it
  bool require_all_rules_match = true;
};

/// t5x.utils.RestoreCheckpointConfig: what a run without checkpoints of its own starts from, and what
/// eval and infer read.
struct RestoreCheckpointConfig {
  std::vector<std::string> path;  // one in training, or none: nothing is restored
  bool has_path = false;          // gin says it
  std::string mode = "latest";  // of the folder; 'specific': path is a checkpoint; 'all': every one
  std::vector<AssignmentMap> transformations;  // assignment_map, then state_transformation_fns
  bool strict = true;  // in training: the checkpoint may hold nothing that the model lacks
  bool fallback_to_scratch = false;      // what it lacks keeps its initial value
  std::optional<int64_t> fallback_seed;  // of these values in eval and infer: fallback_init_rng
  std::optional<DType> dtype;    // parameters are rounded to it: float32, bfloat16 or float16
  std::string adapter = {};      // of eval and infer: merged into what is read; a flag's
  bool restore_dataset = false;  // in training: the position in the data, too
  /// contrib.moe's UpcycleCheckpointer: experts that one array becomes; 0: none.
  int64_t upcycled_experts = 0;
};

/// t5x.utils.CheckpointConfig.
struct CheckpointConfig {
  std::optional<SaveCheckpointConfig> save;
  std::optional<RestoreCheckpointConfig> restore;
};

/// What is bound of T5X's default checkpoint_manager_cls, where `config` names no metric or period by itself.
void apply_manager_bindings(SaveCheckpointConfig& config, const gin::Config& bound);
/// Of the arguments of eval and infer: restore_checkpoint_cfg with fallback_init_rng.
RestoreCheckpointConfig restore_config_from(const gin::Arguments& args);
/// Throws a usage error, as T5X does, if there is to be a fallback but no transformation that asks for one.
void check_fallback(const RestoreCheckpointConfig& config);

void register_checkpoint_configs(gin::Registry& registry);

}  // namespace quintet
