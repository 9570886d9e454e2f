// Feature converters in gin, under seqio's names.
#include "data/configurables/configurables.h"
#include "data/converters/feature_converter.h"
#include "data/tasks/gin_types.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

/// {'weights': ('float32', 1)}: type and rank.
std::vector<PassThroughFeature> passthrough_features(const gin::Arguments& a) {
  std::vector<PassThroughFeature> features;
  const auto given =
      a.get<std::optional<std::vector<std::pair<std::string, std::pair<FeatureType, size_t>>>>>(
          "passthrough_features");
  if (given)
    for (const auto& [name, spec] : *given)
      features.push_back({.name = name, .type = spec.first, .rank = spec.second});
  return features;
}

/// seqio.preprocessors.apply_feature_converter: model features as the end of a task.
struct ApplyFeatureConverter final : Preprocessor {
  FeatureConverterPtr converter;
  bool uses_lengths() const override { return true; }
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override {
    QT_CHECK(converter && context.sequence_length,
             "apply_feature_converter: needs feature_converter and task_feature_lengths");
    return converter->convert(std::move(input), *context.sequence_length);
  }
};

}  // namespace

void register_feature_converters(gin::Registry& r) {
  r.add_struct<ApplyFeatureConverter>("seqio.preprocessors.apply_feature_converter")
      .arg_with("feature_converter", nullptr,
                [](ApplyFeatureConverter& step, const gin::Value& value, const gin::Where& where) {
                  step.converter = gin::as<FeatureConverterPtr>(value, where);
                });
  const ConverterOptions defaults;
  for (const std::string& name : feature_converter_names()) {
    // `options`: what the program chooses (packing); bindings win over it.
    r.add("seqio.feature_converters." + name,
          {{"options", nullptr},
           {"pack", defaults.pack},
           {"use_custom_packing_ops", false},
           {"bos_id", defaults.bos_id},
           {"loss_on_targets_only", defaults.loss_on_targets_only},
           {"apply_length_check", defaults.apply_length_check},
           {"mask_id", defaults.mask_id},
           {"passthrough_features", nullptr}},
          [name](const gin::Arguments& a) {
            auto options = a.get_or<ConverterOptions>("options", {});
            options.pack = a.get_or<bool>("pack", options.pack);
            options.bos_id = a.get<int32_t>("bos_id");
            options.loss_on_targets_only = a.get<bool>("loss_on_targets_only");
            options.apply_length_check = a.get<bool>("apply_length_check");
            options.mask_id = a.get<int32_t>("mask_id");
            options.passthrough_features = passthrough_features(a);
            return gin::to_value(make_feature_converter(name, std::move(options)));
          });
    r.add_alias("seqio." + name, "seqio.feature_converters." + name);
  }
}

}  // namespace quintet::data
