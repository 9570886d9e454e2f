#pragma once
// What gin files may name of runtime/ (optimizers and schedules: optimizer_configurables.h).
//
//   register_runtime(registry);
//   const auto options = config.call_as<TrainerOptions>("trainer.Trainer");

#include <optional>

#include "runtime/gin/registry/registry.h"
#include "runtime/mesh/mesh.h"
#include "runtime/mesh/rules.h"

namespace quintet {

/// partitioning.PjitPartitioner and moe.partitioning.MoePjitPartitioner: how the ranks form a mesh
/// and what is sharded how.
struct PartitionerConfig {
  std::string name;                   // of the configurable, for messages
  int64_t num_partitions = 1;         // size of the mesh's model axis
  int64_t num_expert_partitions = 1;  // of its expert axis, at most
  int64_t num_replicas = 1;           // of its replica axis
  std::optional<int64_t> num_data;    // of its data axis; else the ranks that are left
  LogicalAxisRules logical_axis_rules = standard_logical_axis_rules({});
};

/// The mesh of a run: `replica` and `model` as configured, `expert` the largest divisor of what is left
/// that is not above its bound (t5x/contrib/moe/partitioning.py), `data` the rest. Throws a usage error
/// if they do not make the number of ranks.
std::vector<MeshAxis> mesh_axes(const PartitionerConfig& config, int ranks);

void register_runtime(gin::Registry& registry);

}  // namespace quintet
