#pragma once
// The model of an entry point, and its decode function as gin files name it and bind its arguments.

#include "models/configurables.h"
#include "models/decoding/search/decode_fn.h"

namespace quintet {

/// The argument `model`; throws a usage error if it is None.
std::shared_ptr<ConfiguredModel> configured_model(const gin::Arguments& args);

/// The decode function of the gin files, or T5X's default for this kind of model. Throws a usage
/// error if it is neither one of ours nor the user's own.
decoding::DecodeFn configured_decode_fn(const ConfiguredModel& model, bool decoder_only);

/// decoding.beam_search and decoding.temperature_sample.
void register_decoding(gin::Registry& registry);

}  // namespace quintet
