#pragma once
// A configuration as data, for `quintet config --format=json`: imports, includes, macros and
// bindings, the last one of each name, macros expanded where they are defined.
//
//   // names as written, nothing looked up
//   Resolved r = resolve_files({"run.gin"}, {"BATCH = 8"}, finder);
//   std::string json = to_json(r);

#include <map>
#include <string>
#include <vector>

#include "runtime/gin/config.h"

namespace quintet::gin {

/// Keeps the order in which names first appear.
class NamedValues {
 public:
  void set(const std::string& name, Value value);
  const Value* find(const std::string& name) const;
  const std::vector<std::pair<std::string, Value>>& items() const { return items_; }

 private:
  std::vector<std::pair<std::string, Value>> items_;
  std::map<std::string, size_t> index_;
};

struct Resolved {
  std::vector<std::string> imports;   // statements, in the order met
  std::vector<std::string> includes;  // as written, in the order applied
  std::vector<std::string> missing_includes;
  NamedValues macros;    // "scope/NAME"
  NamedValues bindings;  // "scope/name.parameter"
};

/// Only parses: nothing has to be registered. A missing include is listed, a missing file of
/// `files` an error.
Resolved resolve_files(const std::vector<std::string>& files,
                       const std::vector<std::string>& bindings, const Finder& finder);
/// The value with every configurable that it refers to under its full name.
Value with_full_names(const Value& value);
/// What a Config holds, under full names.
Resolved resolve(const Config& config);

/// Values as in the fixtures: tuple {"tuple": [..]}, dict {"dict": [[k, v], ..]}, reference {"ref":
/// name, "call": bool}, macro {"macro": name}, bytes {"bytes": latin-1}, numbers without JSON form
/// {"repr": text}. With `macros`, defined macros are replaced by their values (30 deep at most).
std::string to_json(const Value& value, const NamedValues* macros = nullptr);
std::string to_json(const Resolved& resolved, bool expand_macros = true);

}  // namespace quintet::gin
