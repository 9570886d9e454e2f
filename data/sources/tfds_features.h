#pragma once
// The features of a data set that TensorFlow Datasets has prepared, as its features.json describes them, and
// tfds.decode: which of them are read, and which as they are stored.
//
//   const std::vector<FeatureSpec> specs = tfds_features(Json::read(folder / "features.json"), decoders);

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/examples/tf_example.h"
#include "runtime/base/formats/json.h"

namespace quintet::data {

/// A dictionary of a gin file by features: {'answers': {'text': VALUE}}.
struct TfdsTree {
  std::string where;   // of the binding, for messages
  bool value = false;  // of what is no dictionary
  std::vector<std::pair<std::string, TfdsTree>> children = {};
};

struct TfdsDecoders {
  std::optional<TfdsTree> features;  // tfds.decode.PartialDecoding: those that are read; none: all
  TfdsTree skipped;                  // tfds.decode.SkipDecoding
};

/// Left out are features that are not read (ragged ones, encoded tensors and videos that are to be decoded); images are
/// read as they are stored. Throws a usage error naming the binding: one of `decoders` that the data set has no feature
/// for, or that asks for a feature that is not read.
std::vector<FeatureSpec> tfds_features(const Json& json, const TfdsDecoders* decoders = nullptr);

/// An integer, which protobuf's JSON writes as a string; throws kData with file and field.
int64_t tfds_number(const Json& json, int64_t least);

}  // namespace quintet::data
