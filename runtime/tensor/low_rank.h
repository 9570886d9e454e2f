#pragma once
// The product of two thin matrices, added to a part of a large one.

#include <cstdint>

namespace quintet {

/// w[i, j] += scale sum_r a[i, r] b[r, j] for w [rows, columns]; a [rows, rank], b [rank, stride] of which `b` points
/// to the first column, all row-major.
inline void add_low_rank(const float* a, const float* b, float scale, int64_t rows, int64_t rank,
                         int64_t columns, int64_t stride, float* w) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t r = 0; r < rank; ++r) {
      const float factor = scale * a[i * rank + r];
      for (int64_t j = 0; j < columns; ++j) w[i * columns + j] += factor * b[r * stride + j];
    }
}

}  // namespace quintet
