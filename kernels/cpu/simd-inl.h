// Highway helpers shared by the CPU kernels. Include after hwy/highway.h, between foreach_target.h
// and the kernel's own HWY_BEFORE_NAMESPACE, as Highway's own -inl headers are.

#if defined(QUINTET_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINTET_SIMD_INL_H_
#undef QUINTET_SIMD_INL_H_
#else
#define QUINTET_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using FloatVec = hn::Vec<Floats>;

/// The first n (< Lanes) elements at p, zeros in the other lanes; touches nothing beyond them.
HWY_INLINE FloatVec load_first(Floats d, const float* p, int64_t n) {
  HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(lanes, p, static_cast<size_t>(n) * sizeof(float));
  return hn::Load(d, lanes);
}

/// Writes the first n (< Lanes) lanes to p.
HWY_INLINE void store_first(Floats d, FloatVec v, float* p, int64_t n) {
  HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(v, d, lanes);
  std::memcpy(p, lanes, static_cast<size_t>(n) * sizeof(float));
}

HWY_INLINE float sum_of_lanes(Floats d, FloatVec v) { return hn::GetLane(hn::SumOfLanes(d, v)); }

/// 1 / (1 + e^-x); x below -88 counts as -88, so that no product with it is infinite.
HWY_INLINE FloatVec sigmoid(Floats d, FloatVec x) {
  const auto one = hn::Set(d, 1.0F);
  return hn::Div(one, hn::Add(one, exponential(d, hn::Min(hn::Neg(x), hn::Set(d, 88.0F)))));
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#endif
