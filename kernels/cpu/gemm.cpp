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

void check(dnnl_status_t status, const Gemm& g) {
  QT_CHECK_AS(ExitCode::kEnvironment, status == dnnl_success,
              "oneDNN refused a {} x {} x {} matrix product (status {}); is memory exhausted?", g.m,
              g.n, g.k, static_cast<int>(status));
}

// Long sums over rows (weight gradients) run up to 12 % faster in parts: 1024 x 512 x 2048 goes
// from 268 to 299 GFLOP/s on two Emerald Rapids cores with oneDNN 2.6, and no shape of T5 1.1 small
// gets slower.
constexpr int64_t kRowsAtATime = 512;

}  // namespace

void gemm(const Gemm& g, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
          int64_t ldc) {
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) return scale_result(g, c, ldc);
  const bool in_parts = g.transpose_a && !g.transpose_b && g.k > kRowsAtATime;
  const int64_t count = in_parts ? (g.k + kRowsAtATime / 2) / kRowsAtATime : 1;
  const int64_t part = (g.k + count - 1) / count;
  for (int64_t first = 0; first < g.k; first += part) {
    const float* a_part = a + (g.transpose_a ? first * lda : first);
    const float* b_part = b + (g.transpose_b ? first : first * ldb);
    check(dnnl_sgemm(g.transpose_a ? 'T' : 'N', g.transpose_b ? 'T' : 'N', g.m, g.n,
                     std::min(part, g.k - first), g.alpha, a_part, lda, b_part, ldb,
                     first == 0 ? g.beta : 1.0F, c, ldc),
          g);
  }
}

}  // namespace quintet::cpu
