#include "kernels/cpu/gemm.h"

#include <dnnl.h>

#include <algorithm>

#include "runtime/base/check.h"

namespace quintet::cpu {
namespace {

// dnnl_sgemm refuses leading dimensions of 0 and has no use for empty products.
void scale_result(const Gemm& g, float* c, int64_t ldc) {
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j = 0; j < g.n; ++j) {
      float& value = c[i * ldc + j];
      value = g.beta == 0 ? 0.0F : g.beta * value;
    }
}

}  // namespace

void gemm(const Gemm& g, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
          int64_t ldc) {
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) return scale_result(g, c, ldc);
  const dnnl_status_t status = dnnl_sgemm(g.transpose_a ? 'T' : 'N', g.transpose_b ? 'T' : 'N', g.m,
                                          g.n, g.k, g.alpha, a, lda, b, ldb, g.beta, c, ldc);
  QT_CHECK_AS(ExitCode::kEnvironment, status == dnnl_success,
              "oneDNN refused a {} x {} x {} matrix product (status {}); is memory exhausted?", g.m,
              g.n, g.k, static_cast<int>(status));
}

}  // namespace quintet::cpu
