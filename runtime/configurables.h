#pragma once
// What gin files may name of runtime/ (optimizers and schedules: runtime/optim/configurables.h).
//
//   register_runtime(registry);
//   const auto options = config.call_as<TrainerOptions>("trainer.Trainer");

#include "runtime/gin/registry.h"
#include "runtime/mesh/rules.h"

namespace quintet {

/// partitioning.PjitPartitioner: how the devices form a (data, model) mesh and what is cut how.
struct PartitionerConfig {
  int64_t num_partitions = 1;  // size of the mesh's model axis
  LogicalAxisRules logical_axis_rules = standard_logical_axis_rules({});
};

void register_runtime(gin::Registry& registry);

}  // namespace quintet
