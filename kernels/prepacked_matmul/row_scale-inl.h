// The scale of a row that is quantized. Include after hwy/highway.h, as Highway's own -inl headers are.

#if defined(QUINTET_ROW_SCALE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINTET_ROW_SCALE_INL_H_
#undef QUINTET_ROW_SCALE_INL_H_
#else
#define QUINTET_ROW_SCALE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The larger magnitudes, NaN being larger than all numbers: they are ordered as their bits are.
template <class I, class V>
HWY_INLINE hn::Vec<I> larger_magnitude(I di, hn::Vec<I> largest, V x) {
  return hn::Max(largest, hn::And(hn::BitCast(di, x), hn::Set(di, 0x7fffffff)));
}

/// Of x [k], at least 1e-30, by which can be divided.
HWY_INLINE float largest_magnitude(const float* x, int64_t k) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto largest = hn::BitCast(di, hn::Set(d, 1e-30f));
  int64_t i = 0;
  for (; i + lanes <= k; i += lanes) largest = larger_magnitude(di, largest, hn::LoadU(d, x + i));
  int32_t bits = hn::GetLane(hn::MaxOfLanes(di, largest));
  for (; i < k; ++i) bits = std::max(bits, std::bit_cast<int32_t>(x[i]) & 0x7fffffff);
  return std::bit_cast<float>(bits);
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#endif
