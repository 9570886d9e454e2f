#pragma once
// Errors of gin files: quintet::Error with exit code 2 whose message starts with "file:line:".

#include <string>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/gin/syntax/value.h"

namespace quintet::gin {

class ConfigError : public Error {
 public:
  /// column: characters from the start of the line, or -1; source: the line itself, shown with a
  /// caret.
  ConfigError(Location where, int column, const std::string& message,
              const std::string& source = {});
  /// The same error with a line added, e.g. "included from run.gin:3".
  ConfigError(const ConfigError& inner, const std::string& added);

  const Location& where() const { return where_; }
  int column() const { return column_; }

 private:
  Location where_;
  int column_ = -1;
};

/// Several findings as one error: "3 problems:\n  ...".
[[noreturn]] void throw_problems(const std::vector<std::string>& problems);

}  // namespace quintet::gin
