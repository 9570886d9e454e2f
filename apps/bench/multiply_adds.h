#pragma once

#include <cstdint>

#include "kernels/prepacked_matmul/prepacked_matmul.h"

namespace quintet {

/// Seconds that this process's OpenMP threads take for so many multiply-adds on numbers in registers, as products of rows
/// with weights of this type make them: of float32, or of the rows' pieces in AMX's tiles, all of whose rows are used.
/// What bounds such products.
double seconds_of_multiply_adds(int64_t count, WeightType weights);

}  // namespace quintet
