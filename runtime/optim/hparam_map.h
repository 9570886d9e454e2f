#pragma once
// T5X's adafactor.HParamMap: a hyper-parameter by the name of the parameter it is for.
//
//   const HParamMap<bool> scale({{"norm/scale", false}, {".*", true}});
//   scale.at("encoder/encoder_norm/scale")   // false: the first expression found in the path decides

#include <string>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/optim/path_pattern.h"

namespace quintet {

template <typename T>
class HParamMap {
 public:
  /// Throws a usage error if an expression is not valid.
  explicit HParamMap(const std::vector<std::pair<std::string, T>>& rules) {
    for (const auto& [expression, value] : rules)
      rules_.emplace_back(PathPattern(expression), value);
  }
  /// The value of the first rule found anywhere in `path`; throws a usage error if there is none.
  T at(const std::string& path) const {
    for (const auto& [pattern, value] : rules_)
      if (pattern.found_in(path)) return value;
    fail(ExitCode::kUsage, "HParamMap: no rule matches parameter {}; add one, e.g. '.*' at the end",
         path);
  }

 private:
  std::vector<std::pair<PathPattern, T>> rules_;
};

}  // namespace quintet
