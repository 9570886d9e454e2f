#include "runtime/gin/explain.h"

#include <algorithm>
#include <set>

#include "runtime/gin/config_state.h"

namespace quintet::gin {
namespace {

/// Configurables, scopes and macros that references reach from what the program reads.
class Reachable {
 public:
  Reachable(const Config::State& state, const ReadByProgram& by_program) : state_(state) {
    for (const std::string& name : by_program.macros) reach_macro(name);
    for (const Bindings::Entry& entry : state.bindings.entries())
      if (by_program.reads(entry.target->name)) reach_target(*entry.target);
  }

  bool has(const Bindings::Entry& entry) const {
    if (entry.target == state_.macro) return macros_.contains(entry.scope);
    const std::vector<std::string> parts = split(entry.scope, '/');
    return targets_.contains(entry.target) &&
           (entry.scope.empty() || std::all_of(parts.begin(), parts.end(), [&](const auto& part) {
              return scopes_.contains(part);
            }));
  }

 private:
  void reach_macro(const std::string& name) {
    if (!macros_.insert(name).second) return;
    const Bindings::Entry* entry = state_.bindings.find(name, state_.macro);
    if (entry != nullptr)
      for (const auto& [param, bound] : entry->params) reach(bound.value);
  }

  void reach_target(const Configurable& target) {
    if (!targets_.insert(&target).second) return;
    for (const Bindings::Entry& entry : state_.bindings.entries()) {
      const bool is_method = entry.target->name.starts_with(target.name + ".");
      if (is_method) reach_target(*entry.target);
      if (entry.target == &target)
        for (const auto& [param, bound] : entry.params) reach(bound.value);
    }
  }

  void reach(const Value& value) {
    visit_values(value, [&](const Value& v) {
      if (const Macro* macro = v.get_if<Macro>()) reach_macro(macro->name);
      const Reference* reference = v.get_if<Reference>();
      if (reference == nullptr || reference->target == nullptr) return;
      scopes_.insert(reference->scopes.begin(), reference->scopes.end());
      reach_target(*reference->target);
    });
  }

  const Config::State& state_;
  std::set<std::string> macros_, scopes_;
  std::set<const Configurable*> targets_;
};

Explained explained_binding(const Config::State& state, const std::string& name,
                            const Bound& bound) {
  Explained out{.name = name,
                .written = bound.value,
                .value = expanded(state, bound.value),
                .place = place_of(bound),
                .shadowed = {}};
  for (auto before = bound.shadowed.rbegin(); before != bound.shadowed.rend(); ++before)
    out.shadowed.push_back({before->value, place_of(*before)});
  return out;
}

}  // namespace

std::vector<Explained> explain(const Config& config, const ReadByProgram& by_program) {
  const Config::State& state = config.state();
  const Reachable reachable(state, by_program);
  std::vector<Explained> out;
  for (const bool macros : {true, false})
    for (const Bindings::Entry& entry : state.bindings.entries()) {
      if ((entry.target == state.macro) != macros) continue;
      for (const auto& [param, bound] : entry.params) {
        out.push_back(explained_binding(state, binding_name(entry, param), bound));
        out.back().is_used = reachable.has(entry);
      }
    }
  return out;
}

}  // namespace quintet::gin
