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
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The float8 in the highest byte of each lane, NaN excepted: its bits in a float's places, whose exponent has 120 more
/// for bias.
template <class I>
HWY_INLINE hn::Vec<hn::RebindToFloat<I>> float8_in_high_byte(I di, hn::Vec<I> lanes) {
  const hn::RebindToFloat<I> d;
  const auto sign = hn::And(lanes, hn::Set(di, std::numeric_limits<int32_t>::min()));
  const auto rest = hn::And(hn::ShiftRight<4>(lanes), hn::Set(di, 0x07f00000));
  return hn::Mul(hn::BitCast(d, hn::Or(sign, rest)), hn::Set(d, 0x1p120f));
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#endif
