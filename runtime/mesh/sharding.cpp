#include "runtime/mesh/sharding.h"

#include <algorithm>
#include <set>

#include "runtime/base/check.h"
#include "runtime/mesh/mesh.h"
#include "runtime/mesh/reshard_plan.h"

namespace quintet {
namespace {

std::string sizes_of(const Axes& mesh) {
  std::string text;
  for (const Axis& axis : mesh)
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", axis.name, axis.size);
  return text;
}

Axes axes_of(const Mesh& mesh) {
  Axes axes;
  for (const MeshAxis& axis : mesh.axes()) axes.push_back({axis.name, axis.size});
  return axes;
}

std::vector<int64_t> coordinates_of(const Mesh& mesh) {
  std::vector<int64_t> coordinates;
  for (const MeshAxis& axis : mesh.axes()) coordinates.push_back(mesh.coordinate(axis.name));
  return coordinates;
}

}  // namespace

Sharding::Sharding(const Mesh& mesh, LogicalAxisRules rules, double network_cost)
    : Sharding(axes_of(mesh), coordinates_of(mesh), std::move(rules), &mesh,
               {mesh.axes_between_hosts(), network_cost}) {}

Sharding::Sharding(Axes mesh, std::vector<int64_t> coordinates, LogicalAxisRules rules,
                   const Mesh* ranks, LinkCosts links)
    : mesh_(std::move(mesh)),
      coordinates_(std::move(coordinates)),
      rules_(std::move(rules)),
      ranks_(ranks),
      links_(std::move(links)) {
  QT_ASSERT(coordinates_.size() == mesh_.size());
  for (auto& [logical, axes] : rules_) {
    for (const std::string& name : axes)
      QT_CHECK(std::any_of(mesh_.begin(), mesh_.end(),
                           [&](const Axis& axis) { return axis.name == name; }),
               "logical axis rule ('{}', '{}'): the mesh [{}] has no axis '{}'; correct "
               "PjitPartitioner.logical_axis_rules",
               logical, fmt::join(axes, "', '"), sizes_of(mesh_), name);
    std::erase_if(axes, [&](const std::string& name) { return parts_of({name}, mesh_) == 1; });
  }
}

Sharding::Use::Use(const Sharding& sharding)
    : ContextMember(sharding.size() > 1 ? &sharding : nullptr) {}

int64_t Sharding::size() const {
  int64_t size = 1;
  for (const Axis& axis : mesh_) size *= axis.size;
  return size;
}

bool Sharding::rules_know(const std::string& logical) const {
  return std::any_of(rules_.begin(), rules_.end(),
                     [&](const auto& rule) { return rule.first == logical; });
}

Layout Sharding::place(const Spec& spec) const {
  std::vector<std::optional<std::string>> names;
  std::set<std::string> seen;  // of two axes of one name the first is sharded
  for (const Axis& axis : spec.axes)
    names.push_back(seen.insert(axis.name).second ? std::optional(axis.name) : std::nullopt);
  return {logical_to_mesh_axes(names, rules_), {}};
}

MeshAxes Sharding::row_axes() const {
  // Of [batch, length]: rules may give a mesh axis to the length first.
  return place({{{axis::kBatch, 1}, {axis::kLength, 1}}}).dims.front();
}

Block Sharding::block(std::string_view what, const Spec& spec, const Layout& layout,
                      const Block& global_slice) const {
  Block block = global_slice;
  for (size_t i = 0; i < layout.dims.size(); ++i) {
    const MeshAxes& axes = layout.dims[i];
    if (axes.empty()) continue;
    const int64_t parts = parts_of(axes, mesh_);
    QT_CHECK(
        global_slice.sizes[i] % parts == 0,
        "{} {}: axis '{}' of size {} cannot be sharded over mesh axis '{}' of size {}, as the rule "
        "('{}', '{}') says; choose a size that it divides, another mesh, or a rule that leaves "
        "'{}' unsharded",
        what, to_string(spec), spec.axes[i].name, global_slice.sizes[i], fmt::join(axes, "+"),
        parts, spec.axes[i].name, fmt::join(axes, "', '"), spec.axes[i].name);
    block.sizes[i] = global_slice.sizes[i] / parts;
    block.origin[i] += index_in(axes) * block.sizes[i];
  }
  return block;
}

int64_t Sharding::index_in(const MeshAxes& axes) const {
  int64_t index = 0;
  for (const std::string& name : axes)
    for (size_t i = 0; i < mesh_.size(); ++i)
      if (mesh_[i].name == name) index = index * mesh_[i].size + coordinates_[i];
  return index;
}

MeshAxes Sharding::axes() const {
  MeshAxes axes;
  for (const Axis& axis : mesh_)
    if (axis.size > 1) axes.push_back(axis.name);
  return axes;
}

bool Sharding::has_first_copy(const MeshAxes& axes, const MeshAxes& ranks) const {
  MeshAxes others;
  for (const std::string& axis : ranks)
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) others.push_back(axis);
  return index_in(others) == 0;
}

bool is_data_parallel() {
  const Sharding* sharding = ExecutionContext::current().sharding;
  if (sharding == nullptr) return true;
  const MeshAxes rows = sharding->row_axes();
  return std::ranges::all_of(sharding->axes(), [&rows](const std::string& axis) {
    return std::ranges::find(rows, axis) != rows.end();
  });
}

}  // namespace quintet
