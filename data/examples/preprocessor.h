#pragma once
// A preprocessor turns one stream of examples into another. Each is a small struct whose members
// are its gin arguments under seqio's and t5's names; data/configurables/configurables.cpp lists them all.
//
//   Rekey rekey;
//   rekey.key_map = {{"inputs", "question"}, {"targets", "answer"}};
//   stream = rekey.apply(std::move(stream), {.output_features = features});

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/examples/trim.h"

namespace quintet::data {

enum class FeatureType { int32, float32, int64, float64, boolean, string };
/// TensorFlow's names: "int32", ..., "bool", "string".
std::string_view name_of(FeatureType type);
std::optional<FeatureType> feature_type_from_name(std::string_view name);

/// seqio.Feature.
struct Feature {
  VocabularyPtr vocabulary;
  bool add_eos = true;
  bool required = true;
  FeatureType type = FeatureType::int32;
  size_t rank = 1;  // dimensions
};
bool is_of_type(const Value& value, FeatureType type);
/// Throws kData unless the example has the feature with that type and rank.
void check_type(const Example& example, std::string_view name, FeatureType type, size_t rank);
/// In the order in which the task lists them.
using Features = std::vector<std::pair<std::string, Feature>>;
const Feature* find_feature(const Features& features, std::string_view name);

/// Longest length of each feature ("sequence_length" in seqio), in the user's order.
using Lengths = std::vector<std::pair<std::string, Length>>;
std::optional<int64_t> find_length(const Lengths& lengths, std::string_view name);

/// What a preprocessor may know of its task.
struct PreprocessContext {
  Features output_features;
  std::optional<Lengths> sequence_length;  // none while caching
  /// The length of a feature; throws a usage error naming `who` if it was not given.
  int64_t length(std::string_view feature, std::string_view who) const;
  const Feature& feature(std::string_view name, std::string_view who) const;
};

class Preprocessor {
 public:
  virtual ~Preprocessor() = default;
  /// How many examples it makes one of. A task's chunk is a multiple of it.
  virtual int64_t examples_joined() const { return 1; }
  /// Whether what it does depends on sequence_length: such a step comes after a cache.
  virtual bool uses_lengths() const { return false; }
  virtual StreamPtr apply(StreamPtr input, const PreprocessContext& context) const = 0;
};
using PreprocessorPtr = std::shared_ptr<const Preprocessor>;

/// Example by example: `change` edits in place and may return false to drop the example. A kData
/// error it throws gets the example's place put before it, or drops the example if its source says
/// so.
StreamPtr map_stream(StreamPtr input, std::function<bool(Example&)> change);
/// One example to any number of them. `expand` appends to out; each gets a key of its own.
StreamPtr flat_map_stream(StreamPtr input,
                          std::function<void(Example&& in, std::vector<Example>& out)> expand);
/// `size` examples (fewer at the end) to any number of them.
StreamPtr group_stream(
    StreamPtr input, int64_t size,
    std::function<void(std::vector<Example>& in, std::vector<Example>& out)> merge);

/// seqio.CacheDatasetPlaceholder: marks the point up to which a task is cached offline.
struct CacheDatasetPlaceholder final : Preprocessor {
  bool required = false;
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

}  // namespace quintet::data
