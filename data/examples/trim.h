#pragma once
// Cutting and padding features of any kind along their first dimension.
//
//   trim_and_pad(value, 4) : [5, 6] -> [5, 6, 0, 0],  [[1.5], [2.5]] -> 4 rows

#include "data/examples/dataset.h"

namespace quintet::data {

/// Size of the first dimension; 1 for a single text or number.
int64_t length_of(const Value& value);
/// The first `length` elements.
void trim(Value& value, int64_t length);
/// Exactly `length` elements; new ones are 0. Single texts and numbers stay as they are.
void trim_and_pad(Value& value, int64_t length);

}  // namespace quintet::data
