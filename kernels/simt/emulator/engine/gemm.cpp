// Stand-in for cuBLASLt: the CPU's products, in float32.

#include "kernels/simt/host/gemm.h"

#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/simt/emulator/emulator.h"

namespace quintet::emulated::simt {
namespace {

/// In 8 bits as `format` says, else of `type`.
std::vector<float> widened(const void* from, DType type, std::optional<Float8> format, int64_t rows,
                           int64_t columns, int64_t stride) {
  std::vector<float> out(static_cast<size_t>(rows * columns));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t at = r * stride + c;
      out[static_cast<size_t>(r * columns + c)] =
          format               ? quintet::widened(static_cast<const uint8_t*>(from)[at], *format)
          : type == DType::f32 ? static_cast<const float*>(from)[at]
                               : static_cast<float>(static_cast<const bfloat16*>(from)[at]);
    }
  return out;
}

/// What cuBLASLt asks of products in 8 bits.
void check_fp8(const Gemm& g, const void* a, const void* b, int64_t lda, int64_t ldb) {
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  QT_ASSERT(!g.a_transposed && g.b_transposed && g.batch == 1);
  QT_ASSERT(g.k % 16 == 0 && g.n % 16 == 0 && lda % 16 == 0 && ldb % 16 == 0);
  QT_ASSERT(aligned(a) && aligned(b) && aligned(g.fp8->a_scale) && aligned(g.fp8->b_scale));
  QT_ASSERT(g.fp8->a == Float8::e4m3 || g.fp8->b == Float8::e4m3);
}

void one_gemm(const Gemm& g, const void* a, const void* b, const void* addend, void* c) {
  const int64_t a_rows = g.a_transposed ? g.k : g.m, a_columns = g.a_transposed ? g.m : g.k;
  const int64_t b_rows = g.b_transposed ? g.n : g.k, b_columns = g.b_transposed ? g.k : g.n;
  const int64_t lda = g.lda != 0 ? g.lda : a_columns, ldb = g.ldb != 0 ? g.ldb : b_columns;
  std::optional<Float8> a_format, b_format;
  float alpha = g.alpha;
  if (g.fp8) {
    check_fp8(g, a, b, lda, ldb);
    a_format = g.fp8->a, b_format = g.fp8->b;
    alpha *= *g.fp8->a_scale * *g.fp8->b_scale;
  }
  const auto wide_a = widened(a, g.type, a_format, a_rows, a_columns, lda);
  const auto wide_b = widened(b, g.type, b_format, b_rows, b_columns, ldb);
  const int64_t ldc = g.ldc != 0 ? g.ldc : g.n;
  const float beta = addend != nullptr ? 1.0f : 0.0f;
  std::vector<float> out = addend == nullptr
                               ? std::vector<float>(static_cast<size_t>(g.m * g.n))
                               : widened(addend, g.c_type, std::nullopt, g.m, g.n, ldc);
  // Row by row where rows are sequences': the CPU's products of several rows round a row by how many
  // there are, on some processors, and answers are the same beside other requests.
  const int64_t step = g.a_transposed ? g.m : 1;
  for (int64_t row = 0; row < g.m; row += step)
    cpu::gemm({step, g.n, g.k, g.a_transposed, g.b_transposed, alpha, beta},
              wide_a.data() + (g.a_transposed ? 0 : row * g.k), a_columns, wide_b.data(), b_columns,
              out.data() + row * g.n, g.n);
  for (int64_t r = 0; r < g.m; ++r)
    for (int64_t n = 0; n < g.n; ++n) {
      const float value = out[static_cast<size_t>(r * g.n + n)];
      if (g.c_type == DType::f32)
        static_cast<float*>(c)[r * ldc + n] = value;
      else
        static_cast<bfloat16*>(c)[r * ldc + n] = bfloat16(value);
    }
}

}  // namespace

void gemm(Stream, const Gemm& problem) {
  emulator::queue_launch([g = problem] {
    const auto at = [](const void* p, DType type, int64_t elements) {
      return static_cast<const char*>(p) + elements * size_of(type);
    };
    if (g.m == 0 || g.n == 0) return;
    for (int64_t i = 0; i < g.batch; ++i)
      one_gemm(g, at(g.a, g.type, i * g.a_stride), at(g.b, g.type, i * g.b_stride),
               g.addend != nullptr ? at(g.addend, g.c_type, i * g.c_stride) : nullptr,
               const_cast<char*>(at(g.c, g.c_type, i * g.c_stride)));
  });
}

}  // namespace quintet::emulated::simt
