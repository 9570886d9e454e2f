#pragma once
// Logical axis rules: an ordered table that says which mesh axis shards which logical axis. The
// sharding policy of a run is such a table. Sources: t5x/partitioning.py, flax/linen/spmd.py.
//
//   const auto rules = standard_logical_axis_rules({.parameter_partitioning_dims = 2});
//   logical_to_mesh_axes({"embed", "mlp"}, rules);   // {{"data"}, {"model"}}

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/mesh/layout.h"

namespace quintet {

using LogicalAxisRules = std::vector<std::pair<std::string, MeshAxes>>;

struct AxisRuleOptions {
  int activation_partitioning_dims = 1;  // 2: the embed axis of activations is sharded over `model`
  int parameter_partitioning_dims =
      1;  // 2: the embed axis of parameters is sharded over `data` (ZeRO-3)
  LogicalAxisRules additional_rules = {};
  /// Between blocks, where no other axis of an activation is sharded over `model`, its length is:
  /// Megatron's sequence parallelism (arXiv:2205.05198). With 1 dimension of activations.
  bool sequence_parallel = false;
  /// `model` shards the length of activations and nothing else: every rank has whole layers and its part of
  /// each row, and gathers keys and values for its queries. For inputs too long for a device. With 1
  /// dimension of activations.
  bool context_parallel = false;
};

/// T5X's standard_logical_axis_rules. Throws a usage error unless both dims are 1 or 2, and for sequence
/// or context parallelism of 2 dimensions of activations, or both at once.
LogicalAxisRules standard_logical_axis_rules(const AxisRuleOptions& options);
/// The same of t5x.contrib.moe: with the axes of experts.
LogicalAxisRules moe_logical_axis_rules(const AxisRuleOptions& options);

/// Batches over the axis `replica` too, as T5X's partitioner has it on a hybrid mesh: what the rules shard
/// over `data` is then sharded within a replica and repeated in the others (hybrid ZeRO).
LogicalAxisRules with_replicas(LogicalAxisRules rules);

/// Mesh axes of each dimension: rules are tried in order; the first that fits a dimension holds; a
/// mesh axis is used at most once an array. A dimension without a name, or that no rule names, is
/// unsharded. Throws a usage error if a logical name appears twice.
std::vector<MeshAxes> logical_to_mesh_axes(const std::vector<std::optional<std::string>>& names,
                                           const LogicalAxisRules& rules);

}  // namespace quintet
