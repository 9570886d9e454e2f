#pragma once
// One-byte weights of device code: four in a word become floats, exactly.
//
//   float v[4];
//   simt::widen<int8_t>(word, v);        // or <simt::e4m3>; the lowest byte first
//
// e4m3: PTX ISA "cvt", .e4m3x2 (sm_89 and later; before, shifted to a float's place). The emulated body
// is runtime/base/float8.h. What 0x7f and 0xff (NaN) become before sm_89 is not NaN: no weight has them.

#include "kernels/simt/types.cuh"
#ifdef QUINTET_EMULATE
#include "runtime/base/float8.h"
#endif

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

QT_DEVICE float to_float(int8_t x) { return static_cast<float>(x); }
QT_DEVICE float to_float(e4m3 x) {
  float v[4];
  widen<e4m3>(x.bits, v);
  return v[0];
}

}  // namespace quintet::QT_GPU::simt
