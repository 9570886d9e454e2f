#pragma once
// What a run reads: the task or mixture of a data set, and what turns its examples into a model's
// features.

#include <functional>

#include "data/batches/batches.h"
#include "models/configurables.h"

namespace quintet {

/// The task or mixture that a data set configuration means.
using ProviderOf = std::function<data::ProviderPtr(const data::DatasetConfig& config)>;

/// The feature converter of a model: the one its configuration names, or the model's own kind.
data::FeatureConverterPtr converter_for(const ConfiguredModel& model,
                                        const data::ConverterOptions& options);

}  // namespace quintet
