// The normal distribution on Highway float vectors, for GELU. Include after hwy/highway.h, as Highway's
// -inl headers are.

#if defined(QUINTET_NORMAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINTET_NORMAL_INL_H_
#undef QUINTET_NORMAL_INL_H_
#else
#define QUINTET_NORMAL_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class V>
struct Normal {
  V cdf, density;
};

/// Phi(x) = (1 + erf(x / sqrt 2)) / 2 and its derivative. Of the smaller tail, Phi(-|x|) =
/// e^(-x^2/2) t p(t) with t = 1 / (1 + 0.35 |x|); p is a minimax polynomial of degree 8 on |x| <= 14.5
/// (relative error 3.2e-8).
template <class D, class V = hn::Vec<D>>
HWY_INLINE Normal<V> normal(D d, V x) {
  const auto c = [d](float value) HWY_ATTR { return hn::Set(d, value); };
  const V e = exponential(d, hn::Mul(hn::Mul(x, x), c(-0.5F)));
  const V t = hn::Div(c(1.0F), hn::MulAdd(hn::Abs(x), c(0.35F), c(1.0F)));
  V p = hn::MulAdd(c(-0.029158029910611664F), t, c(0.14403160909782707F));
  p = hn::MulAdd(p, t, c(-0.2558403992921224F));
  p = hn::MulAdd(p, t, c(0.15932124969292247F));
  p = hn::MulAdd(p, t, c(-0.023213391410443943F));
  p = hn::MulAdd(p, t, c(0.10555292582518427F));
  p = hn::MulAdd(p, t, c(0.11982118498206099F));
  p = hn::MulAdd(p, t, c(0.13986352891794743F));
  p = hn::MulAdd(p, t, c(0.13962130611064222F));
  const V tail = hn::Mul(e, hn::Mul(t, p));
  return {hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(c(1.0F), tail)),
          hn::Mul(e, c(0.3989422804014327F))};
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#endif
