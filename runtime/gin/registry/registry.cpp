#include "runtime/gin/registry/registry.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/gin/registry/builtins.h"
#include "runtime/gin/syntax/parser.h"

namespace quintet::gin {
namespace {

bool has_suffix(const std::string& name, const std::string& suffix) {
  if (name.size() == suffix.size()) return name == suffix;
  return name.size() > suffix.size() && name.ends_with(suffix) &&
         name[name.size() - suffix.size() - 1] == '.';
}

}  // namespace

Value Arguments::value(const std::string& name) const {
  if (const auto found = items_.find(name); found != items_.end()) return found->second.value;
  const Param* param = target_->find(name);
  if (param == nullptr) throw Bug(fmt::format("{} has no parameter {}", target_->name, name));
  if (!param->default_value)
    fail(ExitCode::kUsage, "{}.{}: no value; bind it in a gin file or with --gin.", target_->name,
         name);
  return *param->default_value;
}

const Config& Arguments::config() const {
  QT_ASSERT(config_ != nullptr);
  return *config_;
}

Where Arguments::where(const std::string& name) const {
  if (const auto found = items_.find(name); found != items_.end()) return found->second.where;
  return {target_->name + "." + name};
}

bool Arguments::is_required(const std::string& name) const {
  const Param* param = target_->find(name);
  return param != nullptr && param->required && !param->default_value;
}

std::vector<std::string> Arguments::names() const {
  std::vector<std::string> out;
  for (const auto& [name, item] : items_) out.push_back(name);
  return out;
}

const Param* Configurable::find(const std::string& parameter) const {
  for (const Param& p : params)
    if (p.name == parameter) return &p;
  return nullptr;
}

bool Configurable::accepts(const std::string& parameter) const {
  return (find(parameter) != nullptr && parameter != "**") || find("**") != nullptr;
}

Registry::Registry() { register_builtins(*this); }

Configurable& Registry::add(const std::string& name, std::vector<Param> params, Function function) {
  configurables_.push_back({name, std::move(params), std::move(function), false});
  Configurable& c = configurables_.back();
  if (!by_name_.emplace(name, &c).second)
    throw Bug(fmt::format("gin: {} is registered twice", name));
  return c;
}

Configurable& Registry::add_method(const std::string& name, std::vector<Param> params) {
  Configurable& c = add(name, std::move(params), nullptr);
  c.is_method = true;
  return c;
}

void Registry::add_alias(const std::string& alias, const std::string& name) {
  const Configurable* c = find(name);
  if (c == nullptr)
    throw Bug(fmt::format("gin: alias {} of {}, which is not registered", alias, name));
  if (!by_name_.emplace(alias, c).second)
    throw Bug(fmt::format("gin: {} is registered twice", alias));
}

void Registry::add_constant(const std::string& name, Value value) {
  if (!constants_.emplace(name, std::move(value)).second)
    throw Bug(fmt::format("gin: constant {} is registered twice", name));
}

void Registry::add_module(const std::string& name, std::function<void()> hook) {
  modules_[name] = std::move(hook);
}

const Configurable* Registry::find(const std::string& full_name) const {
  const auto found = by_name_.find(full_name);
  return found == by_name_.end() ? nullptr : found->second;
}

std::vector<const Configurable*> Registry::match(const std::string& suffix) const {
  if (const Configurable* exact = find(suffix)) return {exact};
  std::vector<const Configurable*> out;
  for (const auto& [name, c] : by_name_)
    if (has_suffix(name, suffix) && std::find(out.begin(), out.end(), c) == out.end())
      out.push_back(c);
  return out;
}

const Value* Registry::find_constant(const std::string& full_name) const {
  const auto found = constants_.find(full_name);
  return found == constants_.end() ? nullptr : &found->second;
}

std::vector<std::string> Registry::match_constants(const std::string& suffix) const {
  if (constants_.contains(suffix)) return {suffix};
  std::vector<std::string> out;
  for (const auto& [name, value] : constants_)
    if (has_suffix(name, suffix)) out.push_back(name);
  return out;
}

bool Registry::has_module(const std::string& name) const {
  const auto contains = [&](const auto& names) {
    if (names.contains(name)) return true;
    const auto below = names.lower_bound(name + ".");
    return below != names.end() && below->first.starts_with(name + ".");
  };
  return contains(by_name_) || contains(modules_) || contains(constants_);
}

void Registry::run_module_hook(const std::string& name) const {
  const auto found = modules_.find(name);
  if (found != modules_.end() && found->second) found->second();
}

std::vector<std::string> Registry::names() const {
  std::vector<std::string> out;
  for (const auto& [name, c] : by_name_) out.push_back(name);
  return out;
}

std::vector<std::string> Registry::constant_names() const {
  std::vector<std::string> out;
  for (const auto& [name, value] : constants_) out.push_back(name);
  return out;
}

void internal::check_parameter_count(const std::string& name, size_t given, size_t wanted) {
  if (given != wanted)
    throw Bug(
        fmt::format("gin: {} has {} parameter names for a function of {}", name, given, wanted));
}

}  // namespace quintet::gin
