// E4M3 in vectors. Include after hwy/highway.h, between foreach_target.h and the kernel's own HWY_BEFORE_NAMESPACE, as
// Highway's own -inl headers are.

#if defined(QUINTET_FLOAT8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINTET_FLOAT8_INL_H_
#undef QUINTET_FLOAT8_INL_H_
#else
#define QUINTET_FLOAT8_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The float8 in the highest byte of each lane, NaN excepted: its bits in a float's places, whose exponent has 120 more
/// for bias.
template <class I>
HWY_INLINE hn::Vec<hn::RebindToFloat<I>> float8_in_high_byte(I di, hn::Vec<I> lanes) {
  const hn::RebindToFloat<I> d;
  // The sign's copies come to lie between it and the exponent.
  const auto bits =
      hn::And(hn::ShiftRight<4>(lanes), hn::Set(di, static_cast<int32_t>(0x87f00000u)));
  return hn::Mul(hn::BitCast(d, bits), hn::Set(d, 0x1p120f));
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#endif
