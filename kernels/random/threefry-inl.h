// Threefry-2x32 on Highway vectors, for use inside kernels compiled per instruction set. Include
// after hwy/highway.h, between foreach_target.h and HWY_AFTER_NAMESPACE, as Highway's own -inl
// headers are.
//
//   const hn::ScalableTag<uint32_t> d;
//   const auto bits = threefry_bits(d, key, first_index);        // elements first_index + lane
//   const auto keep = hn::Lt(unit_interval(d, bits), hn::Set(df, rate));

#if defined(QUINTET_THREEFRY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINTET_THREEFRY_INL_H_
#undef QUINTET_THREEFRY_INL_H_
#else
#define QUINTET_THREEFRY_INL_H_
#endif

#include <hwy/highway.h>

#include "runtime/base/threefry.h"

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <int kRotation, class V>
HWY_INLINE void threefry_round(V& x0, V& x1) {
  x0 = hn::Add(x0, x1);
  x1 = hn::Xor(hn::RotateRight<32 - kRotation>(x1), x0);
}

/// threefry2x32 lane by lane: enciphers (x0, x1) in place.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void threefry2x32(D d, Key key, V& x0, V& x1) {
  const uint32_t c = key.a ^ key.b ^ 0x1BD11BDAu;
  x0 = hn::Add(x0, hn::Set(d, key.a));
  x1 = hn::Add(x1, hn::Set(d, key.b));
  const auto even = [&](uint32_t k0, uint32_t k1) HWY_ATTR {
    threefry_round<13>(x0, x1);
    threefry_round<15>(x0, x1);
    threefry_round<26>(x0, x1);
    threefry_round<6>(x0, x1);
    x0 = hn::Add(x0, hn::Set(d, k0));
    x1 = hn::Add(x1, hn::Set(d, k1));
  };
  const auto odd = [&](uint32_t k0, uint32_t k1) HWY_ATTR {
    threefry_round<17>(x0, x1);
    threefry_round<29>(x0, x1);
    threefry_round<16>(x0, x1);
    threefry_round<24>(x0, x1);
    x0 = hn::Add(x0, hn::Set(d, k0));
    x1 = hn::Add(x1, hn::Set(d, k1));
  };
  even(key.b, c + 1);
  odd(c, key.a + 2);
  even(key.a, key.b + 3);
  odd(key.b, c + 4);
  even(c, key.a + 5);
}

/// random_bits(key, first + lane) for every lane; d is a tag of uint32_t.
template <class D>
HWY_INLINE hn::Vec<D> threefry_bits(D d, Key key, uint64_t first) {
  const auto low_first = static_cast<uint32_t>(first);
  auto low = hn::Add(hn::Set(d, low_first), hn::Iota(d, 0));
  auto high = hn::Set(d, static_cast<uint32_t>(first >> 32));
  // Lanes whose low word wrapped round belong to the next high word.
  high = hn::Sub(high, hn::VecFromMask(d, hn::Lt(low, hn::Set(d, low_first))));
  threefry2x32(d, key, high, low);
  return hn::Xor(high, low);
}

/// random_uniform(bits) lane by lane: floats in [0, 1).
template <class D>
HWY_INLINE hn::Vec<hn::RebindToFloat<D>> unit_interval(D d, hn::Vec<D> bits) {
  const hn::RebindToFloat<D> df;
  const auto mantissa = hn::Or(hn::ShiftRight<9>(bits), hn::Set(d, 0x3f800000u));
  return hn::Sub(hn::BitCast(df, mantissa), hn::Set(df, 1.0f));
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#endif
