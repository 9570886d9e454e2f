#pragma once

#include <cstdint>

namespace quintet {

/// Seconds that this process's OpenMP threads take for so many multiply-adds of float32 on numbers in registers. What
/// bounds matrix products that are summed in float32.
double seconds_of_multiply_adds(int64_t count);

}  // namespace quintet
