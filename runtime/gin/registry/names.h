#pragma once
// What a dotted name in a gin file means. A file that starts with `from __gin__ import
// dynamic_registration` resolves names through its own imports; any other by suffix:
// `utils.DatasetConfig` finds `t5x.utils.DatasetConfig` if nothing else ends like that. Between
// several, those already in use by this configuration win, then those whose module the file, then
// any file, imports (Python would know only these).

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/gin/registry/registry.h"
#include "runtime/gin/syntax/parser.h"

namespace quintet::gin {

inline constexpr const char* kDynamicRegistration = "__gin__.dynamic_registration";

/// The imports of one file.
struct ParseContext {
  struct Symbol {
    std::string module;  // what the name stands for, e.g. "t5x.utils"
    ImportStatement source;
    bool is_known = true;
  };
  bool is_dynamic = false;
  std::vector<ImportStatement> imports;
  std::map<std::string, Symbol> symbols;
};

struct Resolution {
  const Configurable* target = nullptr;
  std::string
      problem;  // if there is no target; empty if it follows from a problem already reported
};

class Names {
 public:
  Names(const Registry& registry, std::vector<std::string> main_modules)
      : registry_(registry), main_modules_(std::move(main_modules)) {}

  /// Puts an import into a file's context. Returns what is wrong with it, or "".
  std::string import(ParseContext& context, const ImportStatement& statement, bool is_known);
  bool knows_module(const std::string& module) const;

  /// Marks what it finds as in use.
  Resolution resolve(const ParseContext& context, const std::string& selector);
  /// By suffix, without a file: command lines and Config::call.
  Resolution lookup(const std::string& selector) const;

  /// Under which name a configurable came into this configuration, and by which import.
  struct Registration {
    std::string selector;  // e.g. "train_script.train"
    std::optional<ImportStatement> source;
    std::string attribute;  // behind source.module, e.g. "DatasetConfig"
  };
  const Registration* registration(const Configurable* c) const;
  std::string selector_of(const Configurable* c) const;
  bool is_method(const Configurable* c) const;
  /// The shortest suffix that lookup() in a fresh configuration resolves to c.
  std::string minimal_selector(const Configurable* c) const;

 private:
  Resolution resolve_dynamic(const ParseContext& context, const std::string& selector);
  Resolution resolve_suffix(const ParseContext* context, const std::string& selector) const;
  const Configurable* find_main(const std::string& rest) const;
  std::string unknown(const std::string& selector) const;
  std::string import_hint(const std::string& selector) const;

  const Registry& registry_;
  std::vector<std::string> main_modules_;
  std::map<const Configurable*, Registration> in_use_;
  std::vector<std::string> imported_;      // modules, by any file
  std::set<std::string> unknown_imports_;  // names that unknown modules would have bound
};

}  // namespace quintet::gin
