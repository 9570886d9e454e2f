#pragma once
// tf.train.Example (tf_example.proto), the message in TFRecord files: named lists of bytes, floats or
// integers.
//
//   const ExampleParser parse({{"inputs", "int32", {-1}}, {"score", "float32", {}}});
//   parse(record, example);
//   append_tfrecord(file, serialize_tf_example(example));

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/examples/dataset.h"

namespace quintet::data {

/// What to take from an Example, and as what: tf.io.FixedLenFeature and its kin.
struct FeatureSpec {
  std::string name;
  std::string dtype = "int32";  // bool, int32, int64, float32, float64, string, bytes (unchecked)
  std::vector<int64_t> shape = {};     // {}: a single value; -1, first only: any number
  std::optional<Value> fallback = {};  // of an example that lacks the feature; none: an error
};

/// Takes features out of serialized Examples. Throws kData: malformed messages, missing features,
/// another type or number of values than expected, text that is not UTF-8.
class ExampleParser {
 public:
  /// No features: takes all of them, one text as text, other lists as lists. Throws a usage error for
  /// an unknown dtype or a shape that cannot be.
  explicit ExampleParser(std::vector<FeatureSpec> features);
  void operator()(std::string_view record, Example& out) const;

 private:
  std::vector<FeatureSpec> features_;
};

/// Features in the order of the example, as seqio's caches have them: integers as int64, the rest as
/// float32 or bytes.
std::string serialize_tf_example(const Example& example);

/// "int32[]" (any number), "float32[?,80]", "string": the short form of a FeatureSpec. Throws a usage
/// error.
FeatureSpec parse_feature_spec(const std::string& name, std::string_view text);

}  // namespace quintet::data
