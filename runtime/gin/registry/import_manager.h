#pragma once
// The imports at the head of a written configuration, and under which names they bring
// configurables in.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/gin/registry/names.h"

namespace quintet::gin {

class ImportManager {
 public:
  /// `imports`: the statements of all files read, each once.
  ImportManager(const Names& names, std::vector<ImportStatement> imports);

  bool is_dynamic() const { return is_dynamic_; }
  /// Makes sure that c can be named (only needed with dynamic registration).
  void require(const Configurable* c);
  /// How the written file names c.
  std::string selector(const Configurable* c) const;
  std::vector<ImportStatement> sorted() const;

 private:
  void add(ImportStatement statement);
  /// Module and attribute of c, by the import that brought it in or by its own path.
  std::pair<ImportStatement, std::string> source(const Configurable* c) const;

  const Names& names_;
  bool is_dynamic_ = false;
  std::vector<ImportStatement> imports_;
  std::map<std::string, std::string> prefixes_;  // module -> what stands for it
  std::set<std::string> taken_;                  // names bound so far
};

}  // namespace quintet::gin
