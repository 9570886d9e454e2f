#pragma once
// From task features to model features: trimming, packing or padding, shifting, loss weights;
// seqio's feature converters, to the id.
//
//   const auto converter = make_feature_converter("EncDecFeatureConverter", {.pack = true});
//   stream = converter->convert(std::move(stream), {{"inputs", 512}, {"targets", 114}});

#include <memory>
#include <string>

#include "data/converters/packing.h"

namespace quintet::data {

/// A task feature that a converter hands on, padded.
struct PassThroughFeature {
  std::string name;
  FeatureType type = FeatureType::int32;
  size_t rank = 1;
};

using FeatureTypes = std::map<std::string, FeatureType>;

struct ConverterOptions {
  bool pack = false;
  Packing packing = Packing::greedy;
  int32_t bos_id = 0;                // first decoder input
  bool loss_on_targets_only = true;  // prefix LM: no loss on the inputs
  bool apply_length_check = true;    // a longer sequence is an error; false: it is cut
  int32_t mask_id = -1;              // encoder: the id whose places have a loss
  std::vector<PassThroughFeature> passthrough_features = {};
};

class FeatureConverter : public std::enable_shared_from_this<FeatureConverter> {
 public:
  explicit FeatureConverter(ConverterOptions options) : options_(std::move(options)) {}
  virtual ~FeatureConverter() = default;
  bool pack() const { return options_.pack; }
  Packing packing() const { return options_.packing; }
  /// Declared types of the task's features, and those of the features that are handed on.
  FeatureTypes types(const Features& task) const;
  /// Length of each model feature, in the order of the features; throws a usage error if a task
  /// feature has no length.
  virtual Lengths model_feature_lengths(const Lengths& task_feature_lengths) const = 0;
  /// Those of the lengths that this converter needs.
  virtual Lengths used_lengths(const Lengths& lengths) const = 0;
  /// Model features, all of exactly their length. A sequence longer than its task feature length is
  /// a kData error, a missing feature or one of another type or rank too.
  virtual StreamPtr convert(StreamPtr input, const Lengths& task_feature_lengths) const = 0;

 protected:
  ConverterOptions options_;
};
using FeatureConverterPtr = std::shared_ptr<const FeatureConverter>;

/// By seqio's names:
/// - EncDecFeatureConverter, LMFeatureConverter, PrefixLMFeatureConverter (inputs and targets are
///   one sequence), PrefixSuffixLMFeatureConverter, EncoderFeatureConverter (masked tokens);
/// - DecoderFeatureConverter: PrefixSuffixLM, PrefixLM or LM, by the features that have lengths;
/// - PrePackedEncDecFeatureConverter, PrePackedLMFeatureConverter,
///   PrePackedPrefixLMFeatureConverter: for tasks that pack; PassThroughFeatureConverter: for tasks
///   that make model features, whose lengths task_feature_lengths gives.
FeatureConverterPtr make_feature_converter(std::string_view name, ConverterOptions options);
std::vector<std::string> feature_converter_names();

/// targets moved right by one, bos_id first; with segment ids, at the start of every segment.
Tokens make_autoregressive_inputs(std::span<const int32_t> targets,
                                  std::span<const int32_t> segment_ids, int32_t bos_id);

}  // namespace quintet::data
