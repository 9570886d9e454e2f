#pragma once
// Checks that CPU kernels make of their operands.

#include "kernels/kernel.h"

namespace quintet::cpu {

/// The elements of a float32 operand; throws a usage error naming the op for any other dtype.
inline float* f32(const View& view, const char* op, const char* operand) {
  QT_CHECK(view.dtype == DType::f32,
           "{}: {} has dtype {}, but the CPU kernel computes in float32; cast it first", op,
           operand, name_of(view.dtype));
  return view.data<float>();
}

/// Throws a Bug unless `condition`: shapes have been checked against the op's rule before.
inline void expect_shape(bool condition, const char* op, const char* rule) {
  if (!condition) throw Bug(fmt::format("{}: operands do not have the shapes {}", op, rule));
}

}  // namespace quintet::cpu
