#pragma once
// NumPy's short names of element types, little-endian, as .npy files and zarr write them: "<f4". TensorStore's
// "bfloat16" is among them, which NumPy itself lacks.

#include <optional>
#include <string_view>

#include "runtime/base/dtype.h"

namespace quintet {

std::string_view numpy_type(DType dtype);
/// The inverse; none: no type of ours.
std::optional<DType> dtype_of_numpy_type(std::string_view name);

}  // namespace quintet
