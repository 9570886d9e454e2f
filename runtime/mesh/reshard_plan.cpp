#include "runtime/mesh/reshard_plan.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/mesh/collectives/collectives.h"

namespace quintet {
namespace {

bool contains(const MeshAxes& axes, const std::string& axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

/// Goes from one layout to another, one collective at a time.
class Planner {
 public:
  Planner(const Spec& spec, const Block& global_slice, const Layout& from, const Layout& to,
          const Axes& mesh, const LinkCosts& links)
      : to_(to), mesh_(mesh), links_(links), now_(from) {
    bytes_ = size_of(spec.dtype);
    for (const int64_t size : global_slice.sizes) bytes_ *= size;
    for (const MeshAxes& axes : from.dims) bytes_ /= parts_of(axes, mesh);
  }

  std::vector<ReshardStep> run() {
    while (reduce_scatter() || slice() || all_to_all() || all_reduce() || all_gather()) {
    }
    QT_ASSERT(now_ == to_);
    return std::move(steps_);
  }

 private:
  /// What shards dimension d so far is right, and this is what comes next; nullptr: nothing.
  const std::string* next_of(size_t d) const {
    const MeshAxes &have = now_.dims[d], &want = to_.dims[d];
    return have.size() < want.size() && std::equal(have.begin(), have.end(), want.begin())
               ? &want[have.size()]
               : nullptr;
  }
  /// The axes of dimension d that must go, innermost last.
  MeshAxes surplus_of(size_t d) const {
    const MeshAxes &have = now_.dims[d], &want = to_.dims[d];
    const auto differ = std::mismatch(have.begin(), have.end(), want.begin(), want.end()).first;
    return {differ, have.end()};
  }
  bool in_use(const std::string& axis) const {
    return contains(now_.partial, axis) ||
           std::any_of(now_.dims.begin(), now_.dims.end(),
                       [&](const MeshAxes& axes) { return contains(axes, axis); });
  }
  /// `bytes`: the array's where it is largest, before or after.
  bool add(ReshardKind kind, MeshAxes axes, size_t dim, size_t to_dim, int64_t bytes) {
    const int64_t sent = kind == ReshardKind::kSlice
                             ? 0
                             : Traffic::sent(std::string(name_of(kind)), bytes,
                                             static_cast<int>(parts_of(axes, mesh_)));
    steps_.push_back({kind, std::move(axes), dim, to_dim, now_, sent});
    return true;
  }

  /// Sums that dimension d wants scattered next.
  MeshAxes scattered_of(size_t d) const {
    const MeshAxes &have = now_.dims[d], &want = to_.dims[d];
    if (next_of(d) == nullptr) return {};
    const auto first = want.begin() + static_cast<std::ptrdiff_t>(have.size());
    return {first, std::find_if(first, want.end(), [&](const std::string& axis) {
              return !contains(now_.partial, axis);
            })};
  }

  bool reduce_scatter() {
    for (const bool network : {false, true})
      for (size_t d = 0; d < now_.dims.size(); ++d) {
        MeshAxes axes = scattered_of(d);
        if (axes.empty() || links_.crosses_hosts(axes) != network) continue;
        for (const std::string& axis : axes) {
          std::erase(now_.partial, axis);
          now_.dims[d].push_back(axis);
        }
        const int64_t before = bytes_;
        bytes_ /= parts_of(axes, mesh_);
        return add(ReshardKind::kReduceScatter, std::move(axes), d, 0, before);
      }
    return false;
  }

  bool slice() {
    for (size_t d = 0; d < now_.dims.size(); ++d) {
      const std::string* next = next_of(d);
      if (next == nullptr || in_use(*next)) continue;
      const MeshAxes axes{*next};
      now_.dims[d].push_back(axes[0]);
      bytes_ /= parts_of(axes, mesh_);
      return add(ReshardKind::kSlice, axes, d, 0, 0);
    }
    return false;
  }

  bool all_to_all() {
    for (size_t d = 0; d < now_.dims.size(); ++d) {
      const std::string* next = next_of(d);
      if (next == nullptr) continue;
      for (size_t from = 0; from < now_.dims.size(); ++from) {
        if (from == d || now_.dims[from].empty() || now_.dims[from].back() != *next ||
            surplus_of(from).empty())
          continue;
        const MeshAxes axes{*next};
        now_.dims[from].pop_back();
        now_.dims[d].push_back(axes[0]);
        return add(ReshardKind::kAllToAll, axes, from, d, bytes_);
      }
    }
    return false;
  }

  bool all_reduce() {
    MeshAxes axes;
    for (const Axis& axis : mesh_)
      if (contains(now_.partial, axis.name) && !contains(to_.partial, axis.name))
        axes.push_back(axis.name);
    if (axes.empty()) return false;
    for (const std::string& axis : axes) std::erase(now_.partial, axis);
    return add(ReshardKind::kAllReduce, axes, 0, 0, bytes_);
  }

  bool all_gather() {
    for (const bool network : {true, false})
      for (size_t d = 0; d < now_.dims.size(); ++d) {
        const MeshAxes axes = surplus_of(d);
        if (axes.empty() || links_.crosses_hosts(axes) != network) continue;
        now_.dims[d].resize(now_.dims[d].size() - axes.size());
        bytes_ *= parts_of(axes, mesh_);
        return add(ReshardKind::kAllGather, axes, d, 0, bytes_);
      }
    return false;
  }

  const Layout& to_;
  const Axes& mesh_;
  const LinkCosts& links_;
  Layout now_;
  int64_t bytes_;
  std::vector<ReshardStep> steps_;
};

}  // namespace

std::string_view name_of(ReshardKind kind) {
  switch (kind) {
    case ReshardKind::kReduceScatter:
      return "reduce_scatter";
    case ReshardKind::kSlice:
      return "slice";
    case ReshardKind::kAllToAll:
      return "all_to_all";
    case ReshardKind::kAllReduce:
      return "all_reduce";
    case ReshardKind::kAllGather:
      return "all_gather";
  }
  throw Bug("unknown reshard step");
}

int64_t parts_of(const MeshAxes& axes, const Axes& mesh) {
  int64_t parts = 1;
  for (const std::string& name : axes) {
    const auto found =
        std::find_if(mesh.begin(), mesh.end(), [&](const Axis& axis) { return axis.name == name; });
    QT_CHECK(found != mesh.end(), "the mesh has no axis '{}'", name);
    parts *= found->size;
  }
  return parts;
}

bool LinkCosts::crosses_hosts(const MeshAxes& axes) const {
  return std::ranges::any_of(
      axes, [&](const std::string& axis) { return contains(between_hosts, axis); });
}

std::vector<ReshardStep> reshard_plan(const Spec& spec, const Block& global_slice,
                                      const Layout& from, const Layout& to, const Axes& mesh,
                                      const LinkCosts& links) {
  return from == to ? std::vector<ReshardStep>()
                    : Planner(spec, global_slice, from, to, mesh, links).run();
}

int64_t bytes_of(const std::vector<ReshardStep>& steps) {
  int64_t bytes = 0;
  for (const ReshardStep& step : steps) bytes += step.bytes;
  return bytes;
}

double cost_of(const std::vector<ReshardStep>& steps, const LinkCosts& links) {
  double cost = 0;
  for (const ReshardStep& step : steps)
    cost += static_cast<double>(step.bytes) * links.of(step.axes);
  return cost;
}

}  // namespace quintet
