#pragma once
// Arithmetic, atomic and memory intrinsics of CUDA. Included by language.h.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/simt/emulator/engine.h"
#include "kernels/simt/emulator/vectors.h"

namespace quintet::emulated {

// Bits.
inline float __uint_as_float(unsigned u) { return std::bit_cast<float>(u); }
inline unsigned __float_as_uint(float f) { return std::bit_cast<unsigned>(f); }
inline float __int_as_float(int i) { return std::bit_cast<float>(i); }
inline int __float_as_int(float f) { return std::bit_cast<int>(f); }
inline int __popc(unsigned u) { return std::popcount(u); }
inline int __popcll(unsigned long long u) { return std::popcount(u); }
inline int __clz(int i) { return std::countl_zero(static_cast<unsigned>(i)); }
inline int __clzll(long long i) { return std::countl_zero(static_cast<unsigned long long>(i)); }
inline int __ffs(int i) { return __builtin_ffs(i); }
inline int __ffsll(long long i) { return __builtin_ffsll(i); }
inline unsigned __brev(unsigned u) {
  unsigned r = 0;
  for (int i = 0; i < 32; ++i) r |= ((u >> i) & 1u) << (31 - i);
  return r;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  shift &= 31;
  return shift ? (high << shift) | (low >> (32 - shift)) : high;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  shift &= 31;
  return shift ? (low >> shift) | (high << (32 - shift)) : low;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t bytes = (static_cast<uint64_t>(b) << 32) | a;
  unsigned r = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned pick = (selector >> (4 * i)) & 0xfu;
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (pick & 7u))) & 0xffu;
    if (pick & 8u) byte = (byte & 0x80u) ? 0xffu : 0u;
    r |= byte << (8 * i);
  }
  return r;
}
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) {
    c += static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i));
  }
  return c;
}

// Floating point. The fast forms round the exact value: their error on a device is not emulated.
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / std::sqrt(double{x})); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline unsigned __float2uint_rn(float x) { return static_cast<unsigned>(std::nearbyint(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }

template <typename A, typename B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>)
    return std::fmin(static_cast<T>(a), static_cast<T>(b));
  else
    return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(a) : static_cast<T>(b);
}
template <typename A, typename B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>)
    return std::fmax(static_cast<T>(a), static_cast<T>(b));
  else
    return static_cast<T>(a) > static_cast<T>(b) ? static_cast<T>(a) : static_cast<T>(b);
}

// Loads and stores with cache hints are loads and stores.
#define QT_LOAD(name)   \
  template <typename T> \
  T name(const T* p) {  \
    return *p;          \
  }
QT_LOAD(__ldg)
QT_LOAD(__ldcg)
QT_LOAD(__ldca)
QT_LOAD(__ldcs)
QT_LOAD(__ldlu)
QT_LOAD(__ldcv)
#undef QT_LOAD
#define QT_STORE(name)                             \
  template <typename T>                            \
  void name(T* p, std::type_identity_t<T> value) { \
    *p = value;                                    \
  }
QT_STORE(__stwb)
QT_STORE(__stcg)
QT_STORE(__stcs)
QT_STORE(__stwt)
#undef QT_STORE

inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() {}
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
/// A spinning thread must call this (or an atomic) so that others run.
inline void __nanosleep(unsigned) { simt::emulator::yield(); }
[[noreturn]] inline void __trap() { simt::emulator::fail_here("__trap()"); }

// Atomics: returns what was there. Blocks may run on several host threads, so these are real ones.
namespace simt::emulator {
template <typename T, typename F>
T atomic_update(T* p, F&& f) {
  on_atomic();
  T old = *p, next;
  do {
    next = f(old);
  } while (!__atomic_compare_exchange(p, &old, &next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
  return old;
}
}  // namespace simt::emulator

#define QT_ATOMIC(name, expression)                                             \
  template <typename T>                                                         \
  T name(T* p, std::type_identity_t<T> value) {                                 \
    return simt::emulator::atomic_update(                                       \
        p, [&]([[maybe_unused]] T old) { return static_cast<T>(expression); }); \
  }
QT_ATOMIC(atomicAdd, old + value)
QT_ATOMIC(atomicSub, old - value)
QT_ATOMIC(atomicMax, old < value ? value : old)
QT_ATOMIC(atomicMin, old < value ? old : value)
QT_ATOMIC(atomicAnd, old& value)
QT_ATOMIC(atomicOr, old | value)
QT_ATOMIC(atomicXor, old ^ value)
QT_ATOMIC(atomicExch, value)
QT_ATOMIC(atomicInc, old >= value ? T{0} : old + 1)
QT_ATOMIC(atomicDec, (old == 0 || old > value) ? value : old - 1)
#undef QT_ATOMIC
template <typename T>
T atomicCAS(T* p, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  return simt::emulator::atomic_update(p, [&](T old) { return old == compare ? value : old; });
}

}  // namespace quintet::emulated
