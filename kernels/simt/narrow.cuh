#pragma once
// One-byte numbers of device code: four in a word become floats, exactly, and four floats a word.
//
//   float v[4];
//   simt::widen<int8_t>(word, v);        // or <simt::e4m3>; the lowest byte first
//   word = simt::narrow<Float8::e5m2>(v[0], v[1], v[2], v[3]);
//
// e4m3: PTX ISA "cvt", .e4m3x2 (sm_89 and later; before, shifted to a float's place). The emulated body
// is runtime/base/float8.h. What 0x7f and 0xff (NaN) become before sm_89 is not NaN: no weight has them.

#include "kernels/simt/types.cuh"
#include "runtime/base/float8.h"

namespace quintet::QT_GPU::simt {

/// The bits of a quintet::float8.
struct e4m3 {
  uint8_t bits;
};

template <typename W>
QT_DEVICE void widen(uint32_t word, float (&v)[4]) {
  static_assert(std::is_same_v<W, int8_t> || std::is_same_v<W, e4m3>);
#ifdef QUINTET_EMULATE
  for (int i = 0; i < 4; ++i) {
    const auto byte = static_cast<uint8_t>(word >> 8 * i);
    if constexpr (std::is_same_v<W, int8_t>) {
      v[i] = static_cast<float>(static_cast<int8_t>(byte));
    } else {
      float8 x;
      x.bits = byte;
      v[i] = static_cast<float>(x);
    }
  }
#else
  if constexpr (std::is_same_v<W, int8_t>) {
    // 2^23 + (128 + x) has 128 + x as its lowest byte: a permutation and a sum instead of a conversion.
    const uint32_t biased = word ^ 0x80808080u;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      v[i] = __uint_as_float(__byte_perm(biased, 0x4b000000u, 0x7440u + i)) - 8388736.0f;
  } else {
#if __CUDA_ARCH__ >= 890
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      half2 pair;
      asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair.bits) : "h"(uint16_t(word >> 8 * i)));
      const float2 both = to_float2(pair);
      v[i] = both.x, v[i + 1] = both.y;
    }
#else
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t byte = word >> 8 * i;
      v[i] =
          __uint_as_float((byte & 0x80u) << 24 | (byte & 0x7fu) << 20) * 0x1p120f;  // bias 127 - 7
    }
#endif
  }
#endif
}

/// Rounded to nearest even, what is too large to the largest, NaN to 0x7f: PTX ISA, "cvt", .rn.satfinite (sm_89).
template <Float8 kFormat>
QT_DEVICE uint32_t narrow(float v0, float v1, float v2, float v3) {
#ifdef QUINTET_EMULATE
  uint32_t word = 0;
  for (const float v : {v3, v2, v1, v0})
    word = word << 8 | (std::isnan(v) ? 0x7fu : uint32_t{quintet::narrowed(v, kFormat)});
  return word;
#elif __CUDA_ARCH__ >= 890
  uint16_t low, high;
  if constexpr (kFormat == Float8::e4m3) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(v1), "f"(v0));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(v3), "f"(v2));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(low) : "f"(v1), "f"(v0));
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(high) : "f"(v3), "f"(v2));
  }
  return low | static_cast<uint32_t>(high) << 16;
#else
  __trap();  // Device::multiplies_float8() is false there
#endif
}

QT_DEVICE float to_float(int8_t x) { return static_cast<float>(x); }
QT_DEVICE float to_float(e4m3 x) {
  float v[4];
  widen<e4m3>(x.bits, v);
  return v[0];
}

}  // namespace quintet::QT_GPU::simt
