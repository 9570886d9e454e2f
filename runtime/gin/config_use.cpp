// A verb may read part of a configuration only, and another verb the rest: what no call could read
// counts here, not what the calls of a run have not read.

#include "runtime/gin/config_use.h"

#include <algorithm>

#include "runtime/base/nearest.h"
#include "runtime/gin/config_state.h"
#include "runtime/gin/registry/builtins.h"

namespace quintet::gin {
namespace {

/// Macros, configurables and scopes that the parameters reach. Every bound parameter counts,
/// whether or not something refers to its configurable: which of them are called is up to the verb.
class Reached {
 public:
  Reached(const Config::State& state, const ReadByProgram& by_program) : state_(state) {
    for (const std::string& name : by_program.macros) reach_macro(name);
    for (const Bindings::Entry& entry : state.bindings.entries())
      if (entry.target != state.macro)
        for (const auto& [param, bound] : entry.params) {
          reach(bound.value);
          if (!bound.where.file.starts_with(kBindingFile)) take_as_known(entry);
        }
  }

  bool has_macro(const std::string& name) const { return macros_.contains(name); }
  const std::set<std::string>& macros() const { return macros_; }
  const std::set<std::string>& scopes() const { return scopes_; }

  /// A reference or a gin file names it, or the class that it is a method of.
  bool has(const Configurable& target) const {
    return std::any_of(targets_.begin(), targets_.end(), [&](const Configurable* other) {
      return other == &target || target.name.starts_with(other->name + ".");
    });
  }

 private:
  /// What a gin file configures counts as referred to: other flags may have turned off its use.
  void take_as_known(const Bindings::Entry& entry) {
    targets_.insert(entry.target);
    if (entry.scope.empty()) return;
    const std::vector<std::string> parts = split(entry.scope, '/');
    scopes_.insert(parts.begin(), parts.end());
  }

  void reach_macro(const std::string& name) {
    if (!macros_.insert(name).second) return;
    const Bindings::Entry* entry = state_.bindings.find(name, state_.macro);
    if (entry != nullptr)
      for (const auto& [param, bound] : entry->params) reach(bound.value);
  }

  void reach(const Value& value) {
    visit_values(value, [&](const Value& v) {
      if (const Macro* macro = v.get_if<Macro>()) reach_macro(macro->name);
      const Reference* reference = v.get_if<Reference>();
      if (reference == nullptr || reference->target == nullptr) return;
      targets_.insert(reference->target);
      scopes_.insert(reference->scopes.begin(), reference->scopes.end());
    });
  }

  const Config::State& state_;
  std::set<std::string> macros_, scopes_;
  std::set<const Configurable*> targets_;
};

/// A gin file asks for the macro's value: %gin.REQUIRED was bound before.
bool is_requested(const Bound& bound) {
  return std::any_of(bound.shadowed.begin(), bound.shadowed.end(), [](const Bound& before) {
    return before.value == Value(Macro{kRequiredName});
  });
}

/// The part of a binding's scope that no reference has; empty: all have one.
std::string unknown_scope(const Bindings::Entry& entry, const Reached& reached) {
  if (!entry.scope.empty())
    for (const std::string& part : split(entry.scope, '/'))
      if (!reached.scopes().contains(part)) return part;
  return "";
}

}  // namespace

bool ReadByProgram::reads(const std::string& configurable) const {
  return std::any_of(configurables.begin(), configurables.end(), [&](const std::string& name) {
    return configurable == name || (name.ends_with('.') && configurable.starts_with(name));
  });
}

std::vector<IneffectiveBinding> ineffective_bindings(const Config& config,
                                                     const IneffectiveTable& table) {
  const Config::State& state = config.state();
  std::vector<IneffectiveBinding> found;
  for (const Bindings::Entry& entry : state.bindings.entries())
    for (const auto& [name, bound] : entry.params) {
      const auto row = table.find(entry.target->name + "." + name);
      if (row == table.end()) continue;
      const Ineffective& why = row->second;
      const Value& value = expanded(state, bound.value);
      const Param* param = entry.target->find(name);
      const bool is_default = param != nullptr && value == param->default_value.value_or(Value());
      if (why.verdict != Ineffective::Verdict::removed &&
          (is_default || (why.is_met && why.is_met(value, config))))
        continue;
      found.push_back({place_of(bound), binding_name(entry, name), value, why.verdict, why.reason});
    }
  return found;
}

void check_flags_used(const Config& config, const ReadByProgram& by_program) {
  const Config::State& state = config.state();
  const Reached reached(state, by_program);
  // Names that a misspelt one may have meant: what the configuration itself binds or reads.
  std::vector<std::string> macros(reached.macros().begin(), reached.macros().end()), parameters;
  for (const Bindings::Entry& entry : state.bindings.entries())
    for (const auto& [param, bound] : entry.params)
      if (!bound.where.file.starts_with(kBindingFile) && entry.target != state.macro)
        parameters.push_back(binding_name(entry, param));
  std::vector<std::string> problems;
  const auto problem = [&](const std::string& name, const std::string& what) {
    problems.push_back(fmt::format("--gin.{}: {}", name, what));
  };
  for (const Bindings::Entry& entry : state.bindings.entries())
    for (const auto& [param, bound] : entry.params) {
      if (!bound.where.file.starts_with(kBindingFile)) continue;
      const std::string name = binding_name(entry, param);
      if (entry.target == state.macro) {
        if (!reached.has_macro(entry.scope) && !is_requested(bound))
          problem(name, fmt::format("nothing in the configuration reads the macro '{}'{}", name,
                                    did_you_mean(name, macros)));
      } else if (const std::string scope = unknown_scope(entry, reached); !scope.empty()) {
        problem(name, fmt::format(
                          "nothing in the configuration has the scope '{}'{}", scope,
                          did_you_mean(scope, {reached.scopes().begin(), reached.scopes().end()})));
      } else if (!by_program.reads(entry.target->name) && !reached.has(*entry.target)) {
        problem(name, fmt::format("nothing in the configuration refers to {}{}", entry.target->name,
                                  did_you_mean(name, parameters)));
      }
    }
  if (!problems.empty()) throw_problems(problems);
}

}  // namespace quintet::gin
