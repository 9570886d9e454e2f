#include "kernels/cpu/gemm.h"

#include <dnnl.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "kernels/cpu/parallel.h"
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

// A thread's part of c is worth so many multiplications, and ends where oneDNN's register tiles do.
constexpr int64_t kPartProducts = 1 << 18, kTileRows = 8, kTileColumns = 16;

// Rows and columns of parts that c is divided into: of those with a part for each of `parts`, the
// one whose parts are closest to squares, which read the least of a and b.
std::pair<int, int> grid(const Gemm& g, int parts) {
  std::pair<int, int> best{parts, 1};
  int64_t least = INT64_MAX;
  for (int rows = 1; rows <= parts; ++rows) {
    if (parts % rows != 0) continue;
    const int columns = parts / rows;
    const int64_t read = (g.m + rows - 1) / rows + (g.n + columns - 1) / columns;
    if (read >= least) continue;
    least = read;
    best = {rows, columns};
  }
  return best;
}

// Begin of part `part` of `parts` of [0, count), a multiple of `tile`.
int64_t tile_begin(int64_t count, int64_t tile, int part, int parts) {
  return std::min(count, tile * part_begin((count + tile - 1) / tile, part, parts));
}

// A part's product: within a parallel region oneDNN takes one thread. One too small for two parts
// is not in such a region; oneDNN divides it as it likes.
dnnl_status_t multiply(const Gemm& g, const float* a, int64_t lda, const float* b, int64_t ldb,
                       float* c, int64_t ldc) {
  if (g.m == 0 || g.n == 0) return dnnl_success;
  return dnnl_sgemm(g.transpose_a ? 'T' : 'N', g.transpose_b ? 'T' : 'N', g.m, g.n, g.k, g.alpha, a,
                    lda, b, ldb, g.beta, c, ldc);
}

// c in a part for each thread, not in oneDNN's own parts: those of 2.6 leave a narrow product with
// a transposed b (2048 x 512 x 1024) at 155 GFLOP/s where these reach 211, and none is slower (T5
// 1.1 small's shapes, two EPYC cores).
void multiply_in_parts(const Gemm& g, const float* a, int64_t lda, const float* b, int64_t ldb,
                       float* c, int64_t ldc) {
  const auto [rows, columns] = grid(g, part_count(g.m * g.n * g.k, kPartProducts));
  std::atomic<dnnl_status_t> status{dnnl_success};
  parallel_parts(rows * columns, rows * columns, [&](int64_t first, int64_t, int) {
    const int row = static_cast<int>(first) / columns, column = static_cast<int>(first) % columns;
    const int64_t i = tile_begin(g.m, kTileRows, row, rows);
    const int64_t j = tile_begin(g.n, kTileColumns, column, columns);
    Gemm part = g;
    part.m = tile_begin(g.m, kTileRows, row + 1, rows) - i;
    part.n = tile_begin(g.n, kTileColumns, column + 1, columns) - j;
    const float* its_a = a + (g.transpose_a ? i : i * lda);
    const float* its_b = b + (g.transpose_b ? j * ldb : j);
    const dnnl_status_t its = multiply(part, its_a, lda, its_b, ldb, c + i * ldc + j, ldc);
    if (its != dnnl_success) status = its;
  });
  check(status, g);
}

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
    Gemm sum = g;
    sum.k = std::min(part, g.k - first);
    sum.beta = first == 0 ? g.beta : 1.0F;
    multiply_in_parts(sum, a_part, lda, b_part, ldb, c, ldc);
  }
}

}  // namespace quintet::cpu
