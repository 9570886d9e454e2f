#pragma once
// From task features to model features: trimming, packing or padding, shifting, loss weights;
// seqio's feature converters, to the id.
//
//   const auto converter = make_feature_converter("EncDecFeatureConverter", {.pack = true});
//   stream = converter->convert(std::move(stream), {{"inputs", 512}, {"targets", 114}});

#include <memory>
#include <string>

#include "data/packing.h"

namespace quintet::data {

struct ConverterOptions {
  bool pack = false;
  Packing packing = Packing::greedy;
  int32_t bos_id = 0;                // first decoder input
  bool loss_on_targets_only = true;  // prefix LM: no loss on the inputs
};

class FeatureConverter : public std::enable_shared_from_this<FeatureConverter> {
 public:
  explicit FeatureConverter(ConverterOptions options) : options_(options) {}
  virtual ~FeatureConverter() = default;
  bool pack() const { return options_.pack; }
  Packing packing() const { return options_.packing; }
  /// Length of each model feature, in the order of the features; throws a usage error if a task
  /// feature has no length.
  virtual Lengths model_feature_lengths(const Lengths& task_feature_lengths) const = 0;
  /// Those of the lengths that this converter needs.
  Lengths used_lengths(const Lengths& lengths) const;
  /// Model features, all of exactly their length. A sequence longer than its task feature length is
  /// a kData error, a missing feature too.
  StreamPtr convert(StreamPtr input, const Lengths& task_feature_lengths) const;

 protected:
  /// Throws a usage error unless the lengths are those of task_features(), all positive.
  void check_names(const Lengths& task_feature_lengths) const;
  /// Task features (after packing or padding) to model features.
  virtual void convert_example(Example& example) const = 0;
  /// Joins or checks task features before they are packed or padded.
  virtual StreamPtr prepare(StreamPtr input, Lengths& lengths) const;
  virtual std::vector<std::string> task_features() const = 0;
  ConverterOptions options_;
};
using FeatureConverterPtr = std::shared_ptr<const FeatureConverter>;

/// EncDecFeatureConverter, LMFeatureConverter, PrefixLMFeatureConverter.
FeatureConverterPtr make_feature_converter(std::string_view name, ConverterOptions options);
/// seqio.DecoderFeatureConverter: PrefixLM if the task has inputs, else LM.
FeatureConverterPtr decoder_feature_converter(const Lengths& task_feature_lengths,
                                              ConverterOptions options);

/// targets moved right by one, bos_id first; with segment ids, at the start of every segment.
Tokens make_autoregressive_inputs(std::span<const int32_t> targets,
                                  std::span<const int32_t> segment_ids, int32_t bos_id);

}  // namespace quintet::data
