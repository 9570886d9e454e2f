#pragma once

#include <cstdint>

namespace quintet {

/// Seconds that this process's OpenMP threads take for so many multiply-adds of float32, and of bytes that are summed in
/// int32, on numbers in registers: what bounds matrix products.
double seconds_of_multiply_adds(int64_t floats, int64_t bytes);

}  // namespace quintet
