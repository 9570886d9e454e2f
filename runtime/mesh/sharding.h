#pragma once
// The partitioning of a run: a mesh, this rank's place on it, and the rules that shard arrays by their
// logical axes. Current for a thread; without one, arrays are unsharded and nothing is communicated.
//
//   const Sharding sharding(mesh, standard_logical_axis_rules({}));
//   const Sharding::Use use(sharding);
//   sharding.place(spec)   // {{"data"}, {}, {"model"}} of [batch, length, mlp]

#include <memory>

#include "runtime/base/execution_context.h"
#include "runtime/mesh/reshard_plan.h"
#include "runtime/mesh/rules.h"

namespace quintet {

class Mesh;
class PlanCache;

class Sharding {
 public:
  /// `mesh`: its axes with their sizes, outermost first; those of size 1 never appear in a layout.
  /// `ranks`: who communicates; nullptr on one rank and where steps are only planned. Throws a usage
  /// error naming the rule that has an axis the mesh does not have.
  Sharding(Axes mesh, std::vector<int64_t> coordinates, LogicalAxisRules rules,
           const Mesh* ranks = nullptr, LinkCosts links = {});
  /// A GPU's links within a host, as of NVLink (200 GB/s), by its share of InfiniBand (25 GB/s).
  static constexpr double kNetworkCost = 8;
  /// Of the ranks of a mesh, which must outlive it. `network_cost`: of a byte between hosts, in bytes
  /// within one; the same on all ranks.
  Sharding(const Mesh& mesh, LogicalAxisRules rules, double network_cost = kNetworkCost);

  /// Makes a sharding this thread's for its lifetime; one of a single rank counts as none.
  class Use : ContextMember<&ExecutionContext::sharding> {
   public:
    explicit Use(const Sharding& sharding);
  };

  const Axes& mesh() const { return mesh_; }
  /// Those of the mesh that have more than one rank.
  MeshAxes axes() const;
  const Mesh* ranks() const { return ranks_; }
  const LinkCosts& links() const { return links_; }
  int64_t size() const;
  /// Plans that were made for it (runtime/plan/plan_cache.h). It is one rank's, so one thread's.
  std::shared_ptr<PlanCache>& plans() const { return plans_; }
  /// Whether the rules say anything about an axis of this name.
  bool rules_know(const std::string& logical) const;
  /// Where the rules put an array.
  Layout place(const Spec& spec) const;
  /// The mesh axes that shard the rows of batches.
  MeshAxes row_axes() const;
  /// This rank's part of `global_slice`. Throws a usage error naming `what`, the axis and the sizes where
  /// one does not divide.
  Block block(std::string_view what, const Spec& spec, const Layout& layout,
              const Block& global_slice) const;
  /// Which of the blocks that `axes` make is this rank's.
  int64_t index_in(const MeshAxes& axes) const;
  /// Of the ranks along `ranks` that hold the same block of an array which `axes` shard, whether this is
  /// the first: who counts it where each block counts once.
  bool has_first_copy(const MeshAxes& axes, const MeshAxes& ranks) const;

 private:
  Axes mesh_;
  std::vector<int64_t> coordinates_;
  LogicalAxisRules rules_;
  const Mesh* ranks_;
  LinkCosts links_;
  mutable std::shared_ptr<PlanCache> plans_;
};

/// Whether ranks, if there are several, shard rows of batches alone: each multiplies rows of its own by whole matrices.
bool is_data_parallel();

}  // namespace quintet
