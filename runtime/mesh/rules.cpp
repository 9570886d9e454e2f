#include "runtime/mesh/rules.h"

#include <algorithm>
#include <set>

#include "runtime/base/check.h"

namespace quintet {
namespace {

void append(LogicalAxisRules& rules, const LogicalAxisRules& more) {
  rules.insert(rules.end(), more.begin(), more.end());
}

/// Where the embed axis goes is what the two numbers of dimensions decide.
LogicalAxisRules embed_rules(const AxisRuleOptions& options) {
  LogicalAxisRules rules;
  if (options.activation_partitioning_dims == 2) rules.push_back({"embed", {"model"}});
  if (options.parameter_partitioning_dims == 2) rules.push_back({"embed", {"data"}});
  return rules;
}

}  // namespace

LogicalAxisRules standard_logical_axis_rules(const AxisRuleOptions& options) {
  for (const int dims : {options.activation_partitioning_dims, options.parameter_partitioning_dims})
    QT_CHECK(dims == 1 || dims == 2,
             "standard_logical_axis_rules: partitioning dims must be 1 or 2, found {}", dims);
  const bool context = options.context_parallel,
             shards_length = options.sequence_parallel || context;
  QT_CHECK(!shards_length || options.activation_partitioning_dims == 1,
           "standard_logical_axis_rules: {} shards the length of activations over 'model', "
           "activation_partitioning_dims = 2 their embed axis; choose one",
           context ? "context_parallel" : "sequence_parallel");
  QT_CHECK(!context || !options.sequence_parallel,
           "standard_logical_axis_rules: sequence_parallel shards matrices over 'model' beside the "
           "length of activations, context_parallel nothing but the length; choose one");
  const MeshAxes model = context ? MeshAxes{} : MeshAxes{"model"};
  LogicalAxisRules rules = {{"batch", {"data"}}, {"vocab", model}};
  const LogicalAxisRules embed = embed_rules(options);
  if (embed.empty()) rules.push_back({"embed", {}});
  append(rules, {{"mlp", model}, {"heads", model}, {"kv", {}}, {"joined_kv", model}});
  append(rules, embed);
  for (const char* unsharded : {"relpos_buckets", "abspos_buckets"})
    rules.push_back({unsharded, {}});
  rules.push_back({"length", shards_length ? MeshAxes{"model"} : MeshAxes{}});
  for (const char* unsharded : {"layers", "stack", "mlp_activations"})
    rules.push_back({unsharded, {}});
  append(rules, options.additional_rules);
  return rules;
}

LogicalAxisRules moe_logical_axis_rules(const AxisRuleOptions& options) {
  AxisRuleOptions with_experts = options;
  with_experts.additional_rules = {{"expert", {"expert"}},
                                   {"expert_mlp", {"model"}},
                                   {"expert_replicas", {"data"}},
                                   {"unmodeled", {}}};
  append(with_experts.additional_rules, options.additional_rules);
  LogicalAxisRules rules = standard_logical_axis_rules(with_experts);
  rules.front().second = {"expert", "data"};
  return rules;
}

LogicalAxisRules with_replicas(LogicalAxisRules rules) {
  for (auto& [logical, axes] : rules)
    if (logical == "batch" && std::find(axes.begin(), axes.end(), "replica") == axes.end())
      axes.insert(axes.begin(), "replica");
  return rules;
}

std::vector<MeshAxes> logical_to_mesh_axes(const std::vector<std::optional<std::string>>& names,
                                           const LogicalAxisRules& rules) {
  std::set<std::string> seen;
  for (const auto& name : names)
    QT_CHECK(!name || seen.insert(*name).second,
             "logical axis '{}' appears twice in one array; a rule could not tell them apart",
             *name);
  std::vector<std::optional<MeshAxes>> result(names.size());
  std::set<std::string> used;
  for (const auto& [logical, mesh_axes] : rules) {
    const auto found = std::find(names.begin(), names.end(), logical);
    if (found == names.end()) continue;
    auto& place = result[static_cast<size_t>(found - names.begin())];
    const bool free = std::none_of(mesh_axes.begin(), mesh_axes.end(),
                                   [&](const std::string& a) { return used.contains(a); });
    if (place || !free) continue;
    place = mesh_axes;
    used.insert(mesh_axes.begin(), mesh_axes.end());
  }
  std::vector<MeshAxes> axes;
  for (auto& place : result) axes.push_back(place.value_or(MeshAxes{}));
  return axes;
}

}  // namespace quintet
