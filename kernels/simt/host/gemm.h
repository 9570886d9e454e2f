#pragma once
// Matrix products of whole matrices on the device: cuBLASLt, or the CPU's products in the emulator.
//
//   simt::gemm(stream, {.m = tokens, .n = mlp, .k = embed, .a = x, .b = w, .c = y, .type = DType::bf16});
//
// c [m, n] = alpha op(a) op(b) + addend; all row-major. op(a) is [m, k]: a is [m, k], or [k, m] if
// a_transposed; likewise b [k, n] or [n, k]. a and b have dtype `type`, c `c_type`: float32 or
// bfloat16. Accumulation in float32; float32 operands are multiplied in full float32 precision.
// Sizes of 0 are legal. The algorithm of a problem is the fastest of cuBLASLt's proposals, measured at
// first use and cached for later processes on such a GPU (kernels/tuning/algorithm_cache.h): the same
// bits as long as that file is there. With QUINTET_DETERMINISTIC in the environment it is the first
// proposal, always, and the file is neither read nor written.

#include <cstdint>
#include <optional>

#include "kernels/kernel.h"
#include "kernels/simt/target.h"
#include "runtime/base/float8.h"

namespace quintet::QT_GPU::simt {

/// Operands in 8 bits: c = *a_scale *b_scale a b^T (+ addend). a is [m, k] and b [n, k], the only form that Hopper multiplies,
/// in rows of whole 16 bytes; one of them at least in E4M3. The scales are in the device's memory, at
/// multiples of 16 bytes.
struct Float8Operands {
  Float8 a, b;
  const float *a_scale, *b_scale;
  bool fast_accumulation = false;  // a few bits less in long sums, as forward passes take them
};

struct Gemm {
  int64_t m, n, k;
  const void* a;
  const void* b;
  void* c;
  DType type = DType::f32;
  DType c_type = DType::f32;
  bool a_transposed = false, b_transposed = false;
  float alpha = 1;
  const void* addend =
      nullptr;  // of c's dtype and strides, c itself or apart; nullptr: nothing is added
  int64_t lda = 0, ldb = 0, ldc = 0;  // elements between rows; 0: dense
  // `batch` problems, each operand advancing by its stride in elements, c's addend as c; all share one of stride 0.
  int64_t batch = 1, a_stride = 0, b_stride = 0, c_stride = 0;
  std::optional<Float8Operands> fp8 = {};  // then `type` means nothing, and b_transposed is set
};

/// Throws Error(kEnvironment) naming the sizes when cuBLASLt has no algorithm.
void gemm(Stream stream, const Gemm& problem);

}  // namespace quintet::QT_GPU::simt
