// Feature converters in gin, under seqio's names.
#include "data/configurables.h"
#include "data/feature_converter.h"
#include "data/gin_types.h"

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

}  // namespace

void register_feature_converters(gin::Registry& r) {
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
