#pragma once
// Approximate functions of the special-function unit. Errors are the PTX ISA's ("Floating Point
// Instructions": ex2, tanh, rsqrt, rcp, lg2); the emulator rounds the exact value instead.

#include <cmath>

#include "kernels/simt/language.cuh"

namespace quintet::QT_GPU::simt {

#ifdef QUINTET_EMULATE
QT_DEVICE float exp2_approx(float x) {
  const float r = std::exp2(x);
  return std::fabs(r) < 1.17549435e-38f ? 0.0f : r;  // ex2.approx.ftz flushes
}
QT_DEVICE float tanh_approx(float x) { return std::tanh(x); }
QT_DEVICE float rsqrt_approx(float x) { return 1.0f / std::sqrt(x); }
QT_DEVICE float rcp_approx(float x) { return 1.0f / x; }
QT_DEVICE float log2_approx(float x) { return std::log2(x); }
#else
/// 2^x, relative error 2^-22; results below the normal range are 0.
QT_DEVICE float exp2_approx(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
/// tanh(x), relative error 2^-11: good for bf16 results only.
QT_DEVICE float tanh_approx(float x) {
  float r;
  asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
/// x^-1/2, relative error 2^-22.9.
QT_DEVICE float rsqrt_approx(float x) {
  float r;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
/// 1/x, error 1 unit in the last place.
QT_DEVICE float rcp_approx(float x) {
  float r;
  asm("rcp.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
/// log2(x), absolute error 2^-22 in [0.5, 2], relative outside.
QT_DEVICE float log2_approx(float x) {
  float r;
  asm("lg2.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
#endif

}  // namespace quintet::QT_GPU::simt
