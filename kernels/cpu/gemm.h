#pragma once
// Row-major float32 matrix products by oneDNN, on the OpenMP threads of this process.
//
//   gemm({.m = rows, .n = 1024, .k = 512}, x, 512, w, 1024, y, 1024);              // y = x w
//   gemm({.m = k, .n = n, .k = rows, .transpose_a = true}, x, k, dy, n, dw, n);    // dw = x^T dy
//
// The result depends on the shapes and the number of threads, not on timing.

#include <cstdint>

namespace quintet::cpu {

struct Gemm {
  int64_t m = 0, n = 0, k = 0;                    // c: [m, n]; op(a): [m, k]; op(b): [k, n]
  bool transpose_a = false, transpose_b = false;  // a is stored [k, m], b is stored [n, k]
  float alpha = 1, beta = 0;                      // beta 0: c is only written
};

/// c = alpha op(a) op(b) + beta c. lda, ldb, ldc: distance of rows as stored, in elements.
/// Empty products are legal; k = 0 gives beta c. Throws Error(kEnvironment) if oneDNN refuses.
void gemm(const Gemm& g, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
          int64_t ldc);

}  // namespace quintet::cpu
