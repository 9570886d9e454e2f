#pragma once
// Rows of batches: model features, of whole numbers or floats and of any rank, side by side in
// arrays.
//
//   HostArrays arrays = arrays_for(example, lengths, 8);    // "weights": float32 [8, 3, 2]
//   copy_row(example, 0, arrays);

#include "data/converters/feature_converter.h"
#include "runtime/base/host_array.h"

namespace quintet::data {

/// Arrays of `rows` rows, all zero, of the features that have lengths: of the types given, else int32
/// for whole numbers and float32 for others, [rows, ...the example's shape]. Throws kData for a
/// feature that is missing, is text, or has another length or type.
HostArrays arrays_for(const Example& example, const Lengths& lengths, int64_t rows,
                      const FeatureTypes& types = {});

/// Features into row `row` of the arrays of the same name. Throws kData for a feature of another
/// type or shape than theirs, or a number that its type cannot hold.
void copy_row(const Example& example, int64_t row, HostArrays& arrays);

}  // namespace quintet::data
