#pragma once
// What it takes to bring an array from one layout to another: the collectives, in order, and the
// bytes each rank sends in them. The one place where communication is counted: the planner weighs
// with it, reshard() runs it, `quintet plan` prints it. Pure: needs no mesh but its sizes.
//
//   for (const ReshardStep& step : reshard_plan(spec, global_slice, from, to, {{"data", 4}, {"model", 2}})) ...

#include <string_view>

#include "runtime/mesh/layout.h"

namespace quintet {

enum class ReshardKind { kReduceScatter, kSlice, kAllToAll, kAllReduce, kAllGather };
/// "all_gather": as Traffic has it.
std::string_view name_of(ReshardKind kind);

struct ReshardStep {
  ReshardKind kind;
  MeshAxes axes;      // whose ranks take part, outermost first
  size_t dim = 0;     // the dimension they shard before (all-gather, all-to-all) or after it
  size_t to_dim = 0;  // the dimension they shard after an all-to-all
  Layout after;       // of the array
  int64_t bytes = 0;  // sent by each rank, as Traffic counts; 0 for a slice
};

/// Number of blocks that mesh axes make; `mesh`: the axes with their sizes. Throws a usage error for
/// an axis that the mesh does not have.
int64_t parts_of(const MeshAxes& axes, const Axes& mesh);

/// What a byte costs that ranks along some axes send each other: 1 within a host, `network` where any of the
/// axes, one of `between_hosts`, leads from host to host.
struct LinkCosts {
  MeshAxes between_hosts = {};
  double network = 1;
  double of(const MeshAxes& axes) const { return crosses_hosts(axes) ? network : 1; }
  bool crosses_hosts(const MeshAxes& axes) const;
};

/// `global_slice`: the range of the array that is sharded. Sums of `from` that `to` does not leave open are
/// taken first, scattered where `to` wants that; of several scatters those within a host come first, of several
/// gathers last, so that the least crosses the network.
std::vector<ReshardStep> reshard_plan(const Spec& spec, const Block& global_slice,
                                      const Layout& from, const Layout& to, const Axes& mesh,
                                      const LinkCosts& links = {});
int64_t bytes_of(const std::vector<ReshardStep>& steps);
/// The same, each at its cost.
double cost_of(const std::vector<ReshardStep>& steps, const LinkCosts& links);

}  // namespace quintet
