#include "runtime/gin/registry/names.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/nearest.h"
#include "runtime/gin/registry/builtins.h"

namespace quintet::gin {
namespace {

std::string tail(const std::vector<std::string>& parts, size_t first) {
  return join(
      {parts.begin() + static_cast<std::ptrdiff_t>(std::min(first, parts.size())), parts.end()},
      ".");
}

std::string last_parts(const std::string& name, size_t count) {
  const std::vector<std::string> parts = split(name, '.');
  return tail(parts, parts.size() - std::min(count, parts.size()));
}

/// The module path with the alias for its last part, as gin names what an import brings in.
std::string partial_path(const ImportStatement& s) {
  if (!s.alias.empty()) {
    const size_t dot = s.module.rfind('.');
    return dot == std::string::npos ? s.alias : s.module.substr(0, dot + 1) + s.alias;
  }
  return s.is_from ? s.module : s.module.substr(0, s.module.find('.'));
}

Names::Registration make_registration(const ImportStatement& source,
                                      const std::vector<std::string>& parts) {
  Names::Registration r{partial_path(source) + "." + tail(parts, 1), source, tail(parts, 1)};
  if (source.is_from || !source.alias.empty()) return r;
  const std::vector<std::string> module = split(source.module, '.');
  size_t same = 0;
  while (same < module.size() && same + 1 < parts.size() && module[same] == parts[same]) ++same;
  r.source->module =
      join({module.begin(), module.begin() + static_cast<std::ptrdiff_t>(same)}, ".");
  r.attribute = tail(parts, same);
  return r;
}

bool is_below(const std::string& name, const std::string& module) {
  return name.size() > module.size() && name.starts_with(module) && name[module.size()] == '.';
}

bool ends_with_name(const std::string& name, const std::string& suffix) {
  return name == suffix || name.ends_with("." + suffix);
}

}  // namespace

bool Names::knows_module(const std::string& module) const {
  return module == "__main__" || registry_.has_module(module);
}

std::string Names::import(ParseContext& context, const ImportStatement& statement, bool is_known) {
  if (statement.is_from && statement.module.starts_with("__gin__.")) {
    if (!statement.alias.empty()) return "__gin__ imports do not support `as` aliasing.";
    if (statement.module != kDynamicRegistration)
      return fmt::format("Unrecognized __gin__ feature '{}'.", statement.module.substr(8));
    if (!context.imports.empty())
      return "Dynamic registration should be enabled before any other modules are imported.";
    context.is_dynamic = true;
  } else {
    if (context.is_dynamic) {
      const std::string name = statement.bound_name();
      if (name == "gin")
        return fmt::format("The `gin` symbol is reserved; import with `as` instead of \"{}\".",
                           statement.format());
      const bool whole = statement.is_from || !statement.alias.empty();
      context.symbols[name] = {whole ? statement.module : name, statement, is_known};
    }
    imported_.push_back(statement.module);
    if (!is_known) unknown_imports_.insert(statement.bound_name());
  }
  context.imports.push_back(statement);
  return {};
}

Resolution Names::resolve(const ParseContext& context, const std::string& selector) {
  Resolution found =
      context.is_dynamic ? resolve_dynamic(context, selector) : resolve_suffix(&context, selector);
  if (found.target != nullptr)
    in_use_.emplace(found.target, Registration{found.target->name, {}, {}});
  return found;
}

Resolution Names::lookup(const std::string& selector) const {
  return resolve_suffix(nullptr, selector);
}

const Configurable* Names::find_main(const std::string& rest) const {
  for (const std::string& module : main_modules_)
    if (const Configurable* c = registry_.find(module + "." + rest)) return c;
  return nullptr;
}

Resolution Names::resolve_dynamic(const ParseContext& context, const std::string& selector) {
  const std::vector<std::string> parts = split(selector, '.');
  if (parts[0] == "gin") {
    const Configurable* c = registry_.find(selector);
    return {c, c == nullptr ? unknown(selector) : ""};
  }
  const auto symbol = context.symbols.find(parts[0]);
  if (symbol == context.symbols.end())
    return {nullptr,
            fmt::format(
                "No configurable matching '{}': '{}' was not provided by an import statement in "
                "this file{}",
                selector, parts[0], import_hint(selector))};
  const ParseContext::Symbol& s = symbol->second;
  const std::string rest = tail(parts, 1);
  const Configurable* c =
      s.module == "__main__" ? find_main(rest) : registry_.find(s.module + "." + rest);
  if (c != nullptr) {
    in_use_.emplace(c, make_registration(s.source, parts));
    return {c, {}};
  }
  if (!s.is_known) return {};
  std::vector<std::string> candidates;
  const std::vector<std::string> modules =
      s.module == "__main__" ? main_modules_ : std::vector<std::string>{s.module};
  for (const std::string& name : registry_.names())
    for (const std::string& module : modules)
      if (is_below(name, module)) candidates.push_back(parts[0] + name.substr(module.size()));
  return {nullptr, fmt::format("No configurable matching '{}'{}", selector,
                               did_you_mean(selector, candidates))};
}

Resolution Names::resolve_suffix(const ParseContext* context, const std::string& selector) const {
  if (const Configurable* exact = registry_.find(selector)) return {exact, {}};
  std::vector<const Configurable*> used;
  for (const auto& [c, registration] : in_use_)
    if (ends_with_name(registration.selector, selector)) used.push_back(c);
  if (used.size() == 1) return {used[0], {}};
  const std::vector<const Configurable*> all = registry_.match(selector);
  // `network` may be what an unknown module would have brought in: that import is the problem to
  // tell of.
  const bool is_follow_up =
      context != nullptr && unknown_imports_.contains(selector.substr(0, selector.find('.')));
  if (all.empty()) return {nullptr, is_follow_up ? "" : unknown(selector)};
  const auto among = [&](const auto& accept) {
    std::vector<const Configurable*> out;
    std::copy_if(all.begin(), all.end(), std::back_inserter(out), accept);
    return out;
  };
  const auto imported_by = [](const std::vector<std::string>& modules, const Configurable* c) {
    return std::any_of(modules.begin(), modules.end(),
                       [&](const auto& m) { return is_below(c->name, m); });
  };
  std::vector<std::string> own;
  if (context != nullptr)
    for (const ImportStatement& s : context->imports) own.push_back(s.module);
  std::vector<const Configurable*> best = all;
  if (best.size() > 1) best = among([&](const Configurable* c) { return imported_by(own, c); });
  if (best.empty()) best = among([&](const Configurable* c) { return in_use_.contains(c); });
  if (best.empty()) best = among([&](const Configurable* c) { return imported_by(imported_, c); });
  if (best.empty() && is_follow_up) return {};
  if (best.empty()) best = all;
  if (best.size() == 1) return {best[0], {}};
  std::vector<std::string> names;
  for (const Configurable* c : best) names.push_back(c->name);
  return {
      nullptr,
      fmt::format("Ambiguous selector '{}', matches {}; write one of these, or import its module",
                  selector, join(names, ", "))};
}

std::string Names::unknown(const std::string& selector) const {
  const size_t count = split(selector, '.').size();
  std::vector<std::string> candidates;
  for (const std::string& name : registry_.names()) candidates.push_back(last_parts(name, count));
  for (const auto& [c, registration] : in_use_)
    candidates.push_back(last_parts(registration.selector, count));
  return fmt::format("No configurable matching '{}'{}", selector,
                     did_you_mean(selector, candidates));
}

std::string Names::import_hint(const std::string& selector) const {
  for (const Configurable* c : registry_.match(selector)) {
    const std::string first = selector.substr(0, selector.find('.'));
    if (c->name.size() <= selector.size()) return fmt::format("; add `import {}`", first);
    const std::string module = c->name.substr(0, c->name.size() - selector.size() - 1);
    return fmt::format("; add `from {} import {}`", module, first);
  }
  return {};
}

const Names::Registration* Names::registration(const Configurable* c) const {
  const auto found = in_use_.find(c);
  return found == in_use_.end() ? nullptr : &found->second;
}

std::string Names::selector_of(const Configurable* c) const {
  const Registration* r = registration(c);
  return r == nullptr ? c->name : r->selector;
}

bool Names::is_method(const Configurable* c) const {
  const size_t dot = c->name.rfind('.');
  return c->is_method ||
         (dot != std::string::npos && registry_.find(c->name.substr(0, dot)) != nullptr);
}

std::string Names::minimal_selector(const Configurable* c) const {
  const size_t count = split(c->name, '.').size();
  for (size_t n = is_method(c) ? 2 : 1; n < count; ++n) {
    const std::string suffix = last_parts(c->name, n);
    const std::vector<const Configurable*> found = registry_.match(suffix);
    if (found.size() == 1 && found[0] == c) return suffix;
  }
  return c->name;
}

}  // namespace quintet::gin
