#include "runtime/optim/path_pattern.h"

#include <regex>

#include "runtime/base/check.h"

namespace quintet {

struct PathPattern::Compiled {
  std::regex regex;
};

PathPattern::PathPattern(const std::string& expression) : expression_(expression) {
  try {
    compiled_ = std::make_shared<const Compiled>(Compiled{std::regex(expression)});
  } catch (const std::regex_error& e) {
    fail(ExitCode::kUsage, "'{}' is not a regular expression over parameter paths: {}", expression,
         e.what());
  }
}

bool PathPattern::found_in(const std::string& path) const {
  return std::regex_search(path, compiled_->regex);
}

}  // namespace quintet
