#pragma once
// 16-bit floating-point types of device code. They are storage: arithmetic happens in float.
// Memory layout is that of quintet::bfloat16 and IEEE binary16.
// Conversions round to nearest even: PTX ISA, "Data Movement and Conversion Instructions: cvt".

#include <type_traits>

#include "kernels/simt/language.cuh"

namespace quintet::QT_GPU::simt {

struct alignas(2) bf16 {
  uint16_t bits;
};
struct alignas(2) half {
  uint16_t bits;
};

/// Two 16-bit values in one register; the one with the lower index in memory is in the low bits.
struct alignas(4) bf16x2 {
  uint32_t bits;
};
struct alignas(4) half2 {
  uint32_t bits;
};

#ifdef QUINTET_EMULATE
namespace emulator {
float half_to_float(uint16_t bits);
uint16_t float_to_half(float x);
}  // namespace emulator

QT_DEVICE uint16_t bf16_bits(float x) {
  const uint32_t u = __float_as_uint(x);
  // The hardware's only NaN of this conversion is 0x7fff.
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
QT_DEVICE float to_float(half x) { return emulator::half_to_float(x.bits); }
QT_DEVICE uint32_t pack_bf16(float low, float high) {
  return bf16_bits(low) | static_cast<uint32_t>(bf16_bits(high)) << 16;
}
QT_DEVICE uint32_t pack_half(float low, float high) {
  return emulator::float_to_half(low) | static_cast<uint32_t>(emulator::float_to_half(high)) << 16;
}
QT_DEVICE uint16_t half_bits(float x) { return emulator::float_to_half(x); }
#else
__host__ __device__ inline uint16_t bf16_bits(float x) {
#ifdef __CUDA_ARCH__
  uint16_t r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
#else
  uint32_t u;
  __builtin_memcpy(&u, &x, 4);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
#endif
}
QT_DEVICE uint16_t half_bits(float x) {
  uint16_t r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
QT_DEVICE float to_float(half x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x.bits));
  return r;
}
/// Two floats, rounded, in one register: `low` in bits 0-15.
QT_DEVICE uint32_t pack_bf16(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
QT_DEVICE uint32_t pack_half(float low, float high) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
#endif

QT_DEVICE float to_float(float x) { return x; }
#ifdef QUINTET_EMULATE
QT_DEVICE float to_float(bf16 x) { return __uint_as_float(static_cast<uint32_t>(x.bits) << 16); }
#else
__host__ __device__ inline float to_float(bf16 x) {
  const uint32_t u = static_cast<uint32_t>(x.bits) << 16;
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
}
#endif

/// x rounded to T: float, bf16 or half.
template <typename T>
QT_DEVICE T from_float(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else if constexpr (std::is_same_v<T, bf16>) {
    return bf16{bf16_bits(x)};
  } else {
    static_assert(std::is_same_v<T, half>, "from_float<T>: T is float, bf16 or half");
    return half{half_bits(x)};
  }
}

QT_DEVICE bf16x2 to_bf16x2(float low, float high) { return bf16x2{pack_bf16(low, high)}; }
QT_DEVICE half2 to_half2(float low, float high) { return half2{pack_half(low, high)}; }
QT_DEVICE float2 to_float2(bf16x2 x) {
  return make_float2(__uint_as_float(x.bits << 16), __uint_as_float(x.bits & 0xffff0000u));
}
QT_DEVICE float2 to_float2(half2 x) {
  return make_float2(to_float(half{static_cast<uint16_t>(x.bits)}),
                     to_float(half{static_cast<uint16_t>(x.bits >> 16)}));
}
/// Two values of T in one register, for fragments: pack<bf16>(low, high).
template <typename T>
QT_DEVICE uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, bf16>)
    return pack_bf16(low, high);
  else
    return pack_half(low, high);
}
template <typename T>
QT_DEVICE float2 unpack(uint32_t bits) {
  if constexpr (std::is_same_v<T, bf16>)
    return to_float2(bf16x2{bits});
  else
    return to_float2(half2{bits});
}

/// float32 rounded to tf32 (nearest, ties away), as the register of mma_m16n8k8_tf32.
QT_DEVICE uint32_t to_tf32(float x) {
#ifdef QUINTET_EMULATE
  const uint32_t u = __float_as_uint(x);
  if ((u & 0x7f800000u) == 0x7f800000u) return u;
  return (u + 0x1000u) & 0xffffe000u;
#else
  uint32_t r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
#endif
}

}  // namespace quintet::QT_GPU::simt
