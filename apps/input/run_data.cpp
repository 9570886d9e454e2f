#include "apps/input/run_data.h"

namespace quintet {

data::FeatureConverterPtr converter_for(const ConfiguredModel& model,
                                        const data::ConverterOptions& options) {
  if (const auto* named = model.feature_converter_cls.get_if<gin::Callable>())
    return gin::as<data::FeatureConverterPtr>((*named)({}, {{"options", gin::to_value(options)}}),
                                              gin::Where{"feature_converter_cls"});
  return data::make_feature_converter(
      model.model->spec().decoder_only() ? "DecoderFeatureConverter" : "EncDecFeatureConverter",
      options);
}

}  // namespace quintet
