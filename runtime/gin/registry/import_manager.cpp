#include "runtime/gin/registry/import_manager.h"

#include <algorithm>

namespace quintet::gin {
namespace {

bool is_builtin(const Configurable* c) { return c->name.starts_with("gin."); }

}  // namespace

ImportManager::ImportManager(const Names& names, std::vector<ImportStatement> imports)
    : names_(names) {
  // `from` imports first, and of two plain imports of a module the one with an alias.
  std::stable_sort(imports.begin(), imports.end(),
                   [](const ImportStatement& a, const ImportStatement& b) {
                     return std::tuple(a.module, !a.is_from, a.alias.empty()) <
                            std::tuple(b.module, !b.is_from, b.alias.empty());
                   });
  for (ImportStatement& s : imports) {
    is_dynamic_ |= s.module == kDynamicRegistration;
    add(std::move(s));
  }
}

void ImportManager::add(ImportStatement statement) {
  if (prefixes_.contains(statement.module)) return;
  const std::string wanted = statement.bound_name();
  std::string name = wanted;
  for (int i = 2; taken_.contains(name); ++i) name = wanted + std::to_string(i);
  if (name != wanted) statement.alias = name;
  const bool whole = statement.is_from || !statement.alias.empty();
  prefixes_[statement.module] = whole ? name : statement.module;
  taken_.insert(name);
  imports_.push_back(std::move(statement));
}

std::pair<ImportStatement, std::string> ImportManager::source(const Configurable* c) const {
  const Names::Registration* r = names_.registration(c);
  if (r != nullptr && r->source) return {*r->source, r->attribute};
  size_t dot = c->name.rfind('.');
  if (names_.is_method(c) && dot != std::string::npos && dot > 0) dot = c->name.rfind('.', dot - 1);
  if (dot == std::string::npos) return {{}, c->name};
  const std::string module = c->name.substr(0, dot);
  return {{module, module.find('.') != std::string::npos, ""}, c->name.substr(dot + 1)};
}

void ImportManager::require(const Configurable* c) {
  if (!is_dynamic_ || is_builtin(c)) return;
  if (ImportStatement statement = source(c).first; !statement.module.empty())
    add(std::move(statement));
}

std::string ImportManager::selector(const Configurable* c) const {
  if (!is_dynamic_) return names_.minimal_selector(c);
  if (is_builtin(c)) return c->name;
  const auto [statement, attribute] = source(c);
  const auto prefix = prefixes_.find(statement.module);
  return prefix == prefixes_.end() ? attribute : prefix->second + "." + attribute;
}

std::vector<ImportStatement> ImportManager::sorted() const {
  std::vector<ImportStatement> out = imports_;
  std::stable_sort(out.begin(), out.end(), [](const ImportStatement& a, const ImportStatement& b) {
    return a.module < b.module;
  });
  return out;
}

}  // namespace quintet::gin
