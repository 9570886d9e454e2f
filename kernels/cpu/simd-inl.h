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

/// e^x, relative error below 2e-7 where the result is a normal number; x is clamped to [-87, 88],
/// so the result is never 0 or infinite.
HWY_INLINE FloatVec exp_clamped(Floats d, FloatVec x) {
  x = hn::Min(hn::Max(x, hn::Set(d, -87.0F)), hn::Set(d, 88.0F));
  const auto n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504088896F)));
  // r = x - n ln 2, with ln 2 in two parts of which the first has 9 trailing zero bits.
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375F), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4F), r);
  // Taylor series: |r| <= ln 2 / 2, so the term left out is below 6e-9.
  auto p = hn::Set(d, 1.0F / 5040);
  p = hn::MulAdd(p, r, hn::Set(d, 1.0F / 720));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0F / 120));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0F / 24));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0F / 6));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5F));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0F));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0F));
  const hn::RebindToSigned<Floats> di;
  const auto power = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127)));
  return hn::Mul(p, hn::BitCast(d, power));
}

/// 1 / (1 + e^-x).
HWY_INLINE FloatVec sigmoid(Floats d, FloatVec x) {
  const auto one = hn::Set(d, 1.0F);
  return hn::Div(one, hn::Add(one, exp_clamped(d, hn::Neg(x))));
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#endif
