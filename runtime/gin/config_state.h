#pragma once
// What a Config is made of; for the files config*.cpp only.

#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "runtime/gin/config.h"
#include "runtime/gin/registry/names.h"
#include "runtime/gin/syntax/error.h"

namespace quintet::gin {

/// What the "file" of a binding of the command line begins with.
inline constexpr const char* kBindingFile = "binding \"";

struct Bound {
  Value value;
  Location where;
  std::vector<Bound> shadowed = {};  // what it replaced, the first binding first
};

/// (scope, configurable) -> parameter -> value, both in the order in which they were first bound. A
/// macro is the parameter `value` of gin.macro in the scope of its name.
class Bindings {
 public:
  struct Entry {
    std::string scope;
    const Configurable* target = nullptr;
    std::vector<std::pair<std::string, Bound>> params;
    const Bound* find(const std::string& param) const;
  };
  Entry& entry(const std::string& scope, const Configurable* target);
  void set(const std::string& scope, const Configurable* target, const std::string& param,
           Bound bound);
  const Entry* find(const std::string& scope, const Configurable* target) const;
  const std::deque<Entry>& entries() const { return entries_; }

 private:
  std::deque<Entry> entries_;  // never moves
  std::map<std::pair<std::string, const Configurable*>, size_t> index_;
};

struct Config::State {
  State(const Config* config, const Registry& r, Options o)
      : self(config),
        registry(r),
        options(std::move(o)),
        finder(options.search_paths, options.roots),
        names(r, options.main_modules),
        macro(r.find("gin.macro")) {}

  const Config* self;
  const Registry& registry;
  Options options;
  Finder finder;
  Names names;
  const Configurable* macro;
  Bindings bindings;
  std::vector<ImportStatement> imports;    // of all files, each once
  std::vector<std::string> includes;       // as written, in the order applied
  std::vector<std::string> include_stack;  // files being parsed
  size_t files_parsed = 0;
  std::vector<std::string> problems;                       // unknown names, found while parsing
  std::vector<std::string> unknown;                        // the same with skip_unknown
  std::set<std::pair<std::string, std::string>> reported;  // (file, problem)

  // Written by calls, from any thread.
  mutable std::mutex mutex;
  mutable Bindings operative;
  mutable std::set<std::pair<const Bindings::Entry*, std::string>> used;
  mutable std::recursive_mutex singleton_mutex;
  mutable std::map<std::string, Value> singletons;

  // config_parse.cpp
  void parse_file(const std::string& file, const Statement* include);
  void parse_text(const std::string& text, const std::string& name, ParseContext& context);
  void apply(const Statement& statement, ParseContext& context);
  void apply_import(const Statement& statement, const ImportStatement& import,
                    ParseContext& context);
  void apply_binding(const Statement& statement, const BindingStatement& binding,
                     ParseContext& context);
  /// Binds, and keeps what was bound before.
  void replace(const std::string& scope, const Configurable* target, const std::string& param,
               Bound bound);
  /// Fills in the targets of references and the full names of constants.
  Value take_over(const Value& value, const Statement& statement, ParseContext& context);
  void report(const Statement& statement, const std::string& problem);
  void check_complete(std::vector<std::string>& found) const;

  // config_call.cpp
  const Configurable& require(const std::string& selector) const;
  Value evaluate(const Value& value) const;
  Value evaluate_macro(const Macro& macro) const;
  Value call(const Configurable& target, const std::vector<std::string>& scopes,
             std::vector<Value> positional, Callable::Named named) const;
  /// The binding that a call in this scope sees for a parameter.
  struct Active {
    std::string param;
    const Bound* bound;
    const Bindings::Entry* entry;
  };
  std::vector<Active> active_bindings(const Configurable& target,
                                      const std::vector<std::string>& scope,
                                      const std::map<std::string, Arguments::Item>& given) const;
  void record(const Configurable& target, const std::string& scope,
              const std::vector<Active>& active,
              const std::map<std::string, Arguments::Item>& given) const;
  Arguments bind(const Configurable& target, const std::vector<std::string>& scope,
                 std::vector<Value> positional, Callable::Named named) const;
};

/// visit(value) and visit of all that it holds, keys of dicts too.
void visit_values(const Value& value, const auto& visit) {
  visit(value);
  if (const std::vector<Value>* items = sequence(value))
    for (const Value& item : *items) visit_values(item, visit);
  if (const Dict* dict = value.get_if<Dict>())
    for (const auto& [k, v] : dict->items) {
      visit_values(k, visit);
      visit_values(v, visit);
    }
}

/// The value that a macro of a macro stands for; the macro itself where nothing defines it.
const Value& expanded(const Config::State& state, const Value& value);
/// "file.gin:12", or the flag of the command line: "--gin.NAME=VALUE".
std::string place_of(const Bound& bound);
/// "x/y" or "" in front of a name.
std::string scoped(const std::string& scope, const std::string& name);
/// How a binding is called in messages: the macro's name, or scope/full.name.parameter.
std::string binding_name(const Bindings::Entry& entry, const std::string& param);

}  // namespace quintet::gin
