#pragma once
// A regular expression over parameter paths, in the syntax Python and ECMAScript share (T5X's
// configurations use look-ahead, which RE2 lacks). Searches anywhere in the path, as re.search
// does.

#include <memory>
#include <string>

namespace quintet {

class PathPattern {
 public:
  /// Throws a usage error with the reason if `expression` is not valid.
  explicit PathPattern(const std::string& expression);
  bool found_in(const std::string& path) const;
  const std::string& expression() const { return expression_; }

 private:
  struct Compiled;
  std::string expression_;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace quintet
