#pragma once
// What seqio's info.json and stats.json say about a split. Parts are counted apart and added up.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/examples/preprocessor.h"
#include "runtime/base/formats/json.h"

namespace quintet::data {

class CacheStats {
 public:
  /// Counts an example: tokens of the output features without padding and end marks, characters if
  /// asked. Throws kData unless the example has the features of those before it.
  void add(const Example& example, const Features& output_features, bool count_characters);
  void add(const CacheStats& other);
  int64_t examples() const { return examples_; }

  std::string info_json(int64_t num_shards) const;
  std::string stats_json() const;

  nlohmann::json to_json() const;
  static CacheStats from_json(const Json& json);

 private:
  struct Form {
    std::string dtype;
    std::vector<int64_t> shape;  // -1: any
    bool operator==(const Form&) const = default;
  };
  static Form form_of(const Value& value);
  void add_form(const std::string& name, const Form& form);
  int64_t examples_ = 0;
  std::map<std::string, int64_t> sums_, maxima_;
  std::map<std::string, Form> forms_;
};

}  // namespace quintet::data
