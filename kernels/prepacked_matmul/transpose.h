#pragma once
// Rows to columns, in squares of registers.

#include <cstdint>

namespace quintet {

/// x [rows, k], rows `stride` floats apart -> out [k, rows], rows `out_stride` floats apart.
void transpose(const float* x, int64_t rows, int64_t k, int64_t stride, float* out,
               int64_t out_stride);

}  // namespace quintet
