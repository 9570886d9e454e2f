// Products of a part for each thread: every storage order, parts with ragged ends, more threads
// than parts, leading dimensions wider than the rows.

#include "kernels/cpu/gemm.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/harness/threads.h"

namespace quintet::testing {
namespace {

constexpr int64_t kWider = 3;  // than a row: what lies beyond it is nobody's
constexpr float kUntouched = 77;

// Multiples of 1/16 up to 1/2: products and their sums below are exact in float32, in any order.
float value(int64_t i) { return static_cast<float>(i * 37 % 17 - 8) / 16; }

struct Matrix {
  int64_t rows, columns, stride;
  std::vector<float> values;
  Matrix(int64_t its_rows, int64_t its_columns)
      : rows(its_rows),
        columns(its_columns),
        stride(its_columns + kWider),
        values(static_cast<size_t>(rows * stride), kUntouched) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) at(i, j) = value(i * 31 + j);
  }
  float& at(int64_t i, int64_t j) { return values[static_cast<size_t>(i * stride + j)]; }
};

void multiply(cpu::Gemm g) {
  Matrix a = g.transpose_a ? Matrix(g.k, g.m) : Matrix(g.m, g.k);
  Matrix b = g.transpose_b ? Matrix(g.n, g.k) : Matrix(g.k, g.n);
  Matrix c(g.m, g.n), expected = c;
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j = 0; j < g.n; ++j) {
      float sum = 0;
      for (int64_t l = 0; l < g.k; ++l)
        sum +=
            (g.transpose_a ? a.at(l, i) : a.at(i, l)) * (g.transpose_b ? b.at(j, l) : b.at(l, j));
      expected.at(i, j) = g.alpha * sum + g.beta * c.at(i, j);
    }
  gemm(g, a.values.data(), a.stride, b.values.data(), b.stride, c.values.data(), c.stride);
  EXPECT_EQ(c.values, expected.values);
}

TEST(Gemm, GivesTheSameForAnyNumberOfThreads) {
  struct {
    int64_t m, n, k;
  } const sizes[] = {{131, 67, 300}, {7, 1100, 150}, {1100, 7, 150}, {97, 95, 1100}};
  for (const int threads : {1, 2, 3, 4, 6, 7}) {
    use_threads(threads);
    for (const auto& size : sizes)
      for (const bool transpose_a : {false, true})
        for (const bool transpose_b : {false, true})
          for (const float beta : {0.0F, 0.5F}) {
            SCOPED_TRACE(fmt::format("{} threads: {} x {} x {}, {}{}, beta {}", threads, size.m,
                                     size.n, size.k, transpose_a ? 't' : 'n',
                                     transpose_b ? 't' : 'n', beta));
            multiply({.m = size.m,
                      .n = size.n,
                      .k = size.k,
                      .transpose_a = transpose_a,
                      .transpose_b = transpose_b,
                      .alpha = 2,
                      .beta = beta});
          }
  }
}

}  // namespace
}  // namespace quintet::testing
