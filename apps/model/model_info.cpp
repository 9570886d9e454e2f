#include "apps/model/model_info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/base/files/atomic_file.h"
#include "runtime/base/files/posix_file.h"

namespace quintet {
namespace {

/// ('data', None), as Python prints it.
std::string tuple_text(const std::vector<std::string>& items) {
  return fmt::format("({}{})", fmt::join(items, ", "), items.size() == 1 ? "," : "");
}

std::string partition_text(const std::vector<MeshAxes>& dims) {
  std::vector<std::string> items;
  for (const MeshAxes& axes : dims) {
    std::vector<std::string> names;
    for (const std::string& axis : axes) names.push_back("'" + axis + "'");
    items.push_back(names.empty() ? "None" : names.size() == 1 ? names[0] : tuple_text(names));
  }
  return tuple_text(items);
}

/// An array whose axes have no names, such as a count, has no partition spec.
std::string variable_line(const std::string& name, const Axes& axes,
                          const LogicalAxisRules& rules) {
  int64_t size = 1;
  std::vector<std::string> dimensions;
  std::vector<std::optional<std::string>> names;
  for (const Axis& axis : axes) {
    size *= axis.size;
    dimensions.push_back(axis.name.empty() ? fmt::format("{}", axis.size)
                                           : fmt::format("{}={}", axis.name, axis.size));
    names.push_back(axis.name.empty() ? std::nullopt : std::optional(axis.name));
  }
  const bool named = std::any_of(names.begin(), names.end(), [](const auto& n) { return n; });
  return fmt::format(
      "Variable {:<80} size {:<12} shape {:<40} partition spec {}\n", name, size,
      named ? fmt::format("({})", fmt::join(dimensions, ", ")) : tuple_text(dimensions),
      named ? partition_text(logical_to_mesh_axes(names, rules)) : "None");
}

Axes axes_of(const StateArray& array) {
  Axes axes;
  for (size_t i = 0; i < static_cast<size_t>(array.view.rank); ++i)
    axes.push_back({i < array.axes.size() ? array.axes[i] : "", array.view.global[i]});
  return axes;
}

}  // namespace

std::string model_info(const Parameters& parameters, const LogicalAxisRules& rules,
                       const std::vector<StateArray>& state) {
  std::string text;
  for (const ParamInfo& info : parameters.all())
    text += variable_line(info.name, info.spec.axes, rules);
  text += fmt::format("Total number of parameters: {}\n\n", parameters.elements());
  const std::string_view below = "state/";
  for (const StateArray& array : state)
    if (array.name.starts_with(below))
      text += variable_line(array.name.substr(below.size()), axes_of(array), rules);
  return text + variable_line("step", {}, rules);
}

void describe_results(const std::filesystem::path& output_dir,
                      const std::vector<std::filesystem::path>& checkpoints,
                      const std::string& config_text, const Parameters& parameters,
                      const LogicalAxisRules& rules) {
  if (output_dir.empty()) return;
  make_folders(output_dir);
  for (const std::filesystem::path& checkpoint : checkpoints)
    if (std::error_code ignored;
        std::filesystem::equivalent(checkpoint, output_dir, ignored) ||
        std::filesystem::equivalent(checkpoint / "..", output_dir, ignored))
      return;
  if (!config_text.empty()) atomic_write_file(output_dir / "config.gin", config_text);
  atomic_write_file(output_dir / "model-info.txt", model_info(parameters, rules));
}

}  // namespace quintet
