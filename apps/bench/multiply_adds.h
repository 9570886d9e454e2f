#pragma once

namespace quintet {

/// Multiply-adds of float32 a second of this process's OpenMP threads on numbers in registers: the fastest of some
/// passes. What bounds matrix products that are summed in float32.
double measure_multiply_adds(int passes);

}  // namespace quintet
