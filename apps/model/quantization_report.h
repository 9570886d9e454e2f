#pragma once
// What a trained model loses with its weights in fewer bits, part by part.

#include "apps/flags/result_format.h"
#include "apps/model/trained_model.h"
#include "data/batches/batches.h"
#include "kernels/prepacked_matmul/prepacked_matmul.h"

namespace quintet {

/// Compares the model with itself in `weights` on the first examples of `set`: objects and a
/// table.
void report_quantization(const TrainedModel& trained, WeightType weights,
                         const data::DatasetConfig& set, int64_t num_examples,
                         const ResultFormat& format);

}  // namespace quintet
