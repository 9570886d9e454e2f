#include "runtime/gin/config.h"

#include "runtime/gin/config_state.h"
#include "runtime/gin/registry/builtins.h"

namespace quintet::gin {

const Bound* Bindings::Entry::find(const std::string& param) const {
  for (const auto& [name, bound] : params)
    if (name == param) return &bound;
  return nullptr;
}

Bindings::Entry& Bindings::entry(const std::string& scope, const Configurable* target) {
  const auto [found, is_new] = index_.emplace(std::pair(scope, target), entries_.size());
  if (is_new) entries_.push_back({scope, target, {}});
  return entries_[found->second];
}

void Bindings::set(const std::string& scope, const Configurable* target, const std::string& param,
                   Bound bound) {
  Entry& e = entry(scope, target);
  for (auto& [name, old] : e.params)
    if (name == param) {
      old = std::move(bound);
      return;
    }
  e.params.emplace_back(param, std::move(bound));
}

const Bindings::Entry* Bindings::find(const std::string& scope, const Configurable* target) const {
  const auto found = index_.find(std::pair(scope, target));
  return found == index_.end() ? nullptr : &entries_[found->second];
}

std::string scoped(const std::string& scope, const std::string& name) {
  return scope.empty() ? name : scope + "/" + name;
}

std::string binding_name(const Bindings::Entry& entry, const std::string& param) {
  if (entry.target->name == kMacroName) return entry.scope;
  return scoped(entry.scope, entry.target->name) + "." + param;
}

std::string place_of(const Bound& bound) {
  std::string flag = bound.where.file;
  if (!flag.starts_with(kBindingFile)) return bound.where.str();
  flag = flag.substr(std::string(kBindingFile).size());
  if (flag.ends_with('"')) flag.pop_back();
  if (const size_t equals = flag.find(" = "); equals != std::string::npos)
    flag.replace(equals, 3, "=");
  return "--gin." + flag;
}

const Value& expanded(const Config::State& state, const Value& value) {
  const Value* out = &value;
  for (int depth = 0; depth < 100; ++depth) {  // macros may name each other in a circle
    const Macro* macro = out->get_if<Macro>();
    const Bindings::Entry* entry =
        macro == nullptr ? nullptr : state.bindings.find(macro->name, state.macro);
    const Bound* bound = entry == nullptr ? nullptr : entry->find("value");
    if (bound == nullptr) return *out;
    out = &bound->value;
  }
  return *out;
}

Config::Config(const Registry& registry, Options options)
    : state_(std::make_unique<State>(this, registry, std::move(options))) {}
Config::~Config() = default;

void Config::load(const CommandLine& command_line) {
  state_->finder.add_search_paths(command_line.search_paths);
  for (const std::string& file : command_line.files) parse_file(file);
  parse_bindings(command_line.bindings);
  finalize();
}

void Config::parse_file(const std::string& file) { state_->parse_file(file, nullptr); }

void Config::parse_text(const std::string& text, const std::string& name) {
  ParseContext context;
  state_->parse_text(text, name, context);
}

void Config::parse_bindings(const std::vector<std::string>& bindings) {
  ParseContext context;
  for (const std::string& binding : bindings) {
    try {
      state_->parse_text(binding, kBindingFile + binding + "\"", context);
    } catch (const ConfigError& error) {
      const size_t equals = binding.find('=');
      if (equals == std::string::npos || error.column() < static_cast<int>(equals)) throw;
      throw ConfigError(error, "a string needs quotes of its own: --gin.NAME='\"text\"'");
    }
  }
}

void Config::finalize() {
  std::vector<std::string> problems = state_->problems;
  if (state_->options.needs_all) state_->check_complete(problems);
  if (!problems.empty()) throw_problems(problems);
}

const Value* Config::query(const std::string& binding) const {
  auto [scope, selector] = split_scope(binding);
  const size_t dot = selector.rfind('.');
  const Bindings::Entry* entry = nullptr;
  std::string param = "value";
  if (dot == std::string::npos) {
    entry = state_->bindings.find(binding, state_->macro);
  } else {
    param = selector.substr(dot + 1);
    entry = state_->bindings.find(scope, &state_->require(selector.substr(0, dot)));
  }
  const Bound* bound = entry == nullptr ? nullptr : entry->find(param);
  return bound == nullptr ? nullptr : &bound->value;
}

bool Config::knows(const std::string& scoped_name) const {
  return state_->names.lookup(split_scope(scoped_name).second).target != nullptr;
}

std::vector<std::string> Config::unused() const {
  const std::lock_guard lock(state_->mutex);
  std::vector<std::string> out;
  for (const Bindings::Entry& entry : state_->bindings.entries())
    for (const auto& [param, bound] : entry.params)
      if (!state_->used.contains({&entry, param}))
        out.push_back(bound.where.str() + ": " + binding_name(entry, param));
  return out;
}

const std::vector<std::string>& Config::unknown() const { return state_->unknown; }
const Registry& Config::registry() const { return state_->registry; }

}  // namespace quintet::gin
