// The exponential of a softmax on Highway float vectors: e^x for x <= 88 within 1 unit in the last
// place, but 0 below -60, and NaN for NaN (Highway's own Exp gives 0 there, which would hide a
// diverged run). Beside a softmax's largest term, 1, e^-60 is nothing in float32; kept, it would
// make subnormal numbers in the matrix products after it, which then take ten times as long.
// Include after hwy/highway.h, as Highway's -inl headers are.

#if defined(QUINTET_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINTET_EXP_INL_H_
#undef QUINTET_EXP_INL_H_
#else
#define QUINTET_EXP_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// e^x = 2^n e^r with n = round(x / ln 2) and |r| <= ln 2 / 2; e^r = 1 + r + r^2 p(r), p a minimax
/// polynomial of degree 4 (relative error 3.1e-9, by Remez's exchange).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exponential(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto c = [d](float value) HWY_ATTR { return hn::Set(d, value); };
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the mantissa; 127 more make it
  // the biased exponent of 2^n.
  constexpr float kRound = 12582912.0F + 127.0F;
  const V shifted = hn::MulAdd(x, c(1.44269504F), c(kRound));
  const V n = hn::Sub(shifted, c(kRound));
  // ln 2 in two parts, the first with few enough bits for n times it to be exact.
  V r = hn::NegMulAdd(n, c(0.693359375F), x);
  r = hn::NegMulAdd(n, c(-2.12194440e-4F), r);
  V p = hn::MulAdd(c(0.00138146132F), r, c(0.00836870983F));
  p = hn::MulAdd(p, r, c(0.0416683874F));
  p = hn::MulAdd(p, r, c(0.166665207F));
  p = hn::MulAdd(p, r, c(0.499999935F));
  p = hn::MulAdd(p, r, c(1.0F));
  p = hn::MulAdd(p, r, c(1.0F));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
  const V y = hn::Mul(p, hn::BitCast(d, exponent));
  return hn::IfThenZeroElse(hn::Lt(x, c(-60.0F)), y);
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#endif
