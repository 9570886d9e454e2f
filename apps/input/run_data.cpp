#include "apps/input/run_data.h"

namespace quintet {

data::FeatureConverterPtr converter_for(const ConfiguredModel& model,
                                        const data::ConverterOptions& options) {
  if (!model.feature_converter_cls.is_none()) {
    const gin::Where where{model.name + ".feature_converter_cls"};
    const auto named = gin::as<gin::Callable>(model.feature_converter_cls, where);
    return gin::as<data::FeatureConverterPtr>(named({}, {{"options", gin::to_value(options)}}),
                                              where);
  }
  return data::make_feature_converter(
      model.model->spec().decoder_only() ? "DecoderFeatureConverter" : "EncDecFeatureConverter",
      options);
}

}  // namespace quintet
