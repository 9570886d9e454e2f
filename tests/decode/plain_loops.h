#pragma once
// What the tests of generation's kernels compare with, and numbers for it.

#include <cstdint>
#include <random>
#include <vector>

namespace quintet {

inline std::vector<float> random_floats(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& x : values) x = normal(random);
  return values;
}

inline double dot(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i)
    sum += static_cast<double>(a[i * a_stride]) * static_cast<double>(b[i * b_stride]);
  return sum;
}

}  // namespace quintet
