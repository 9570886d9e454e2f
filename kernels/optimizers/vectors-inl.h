// A loop over arrays of any length, float32 or FloatPointer, in full vectors, for the kernels of this folder. Include
// between foreach_target.h and HWY_AFTER_NAMESPACE, as Highway's own -inl headers are.

#if defined(QUINTET_OPTIMIZERS_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINTET_OPTIMIZERS_VECTORS_INL_H_
#undef QUINTET_OPTIMIZERS_VECTORS_INL_H_
#else
#define QUINTET_OPTIMIZERS_VECTORS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "kernels/optimizers/float_pointer.h"

HWY_BEFORE_NAMESPACE();
namespace quintet::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

/// A full vector at p.
struct Load {
  V operator()(const float* p) const { return hn::LoadU(D(), p); }
  V operator()(FloatPointer p) const {
    if (!p.is_bf16) return hn::LoadU(D(), static_cast<const float*>(p.pointer));
    const hn::Rebind<hwy::bfloat16_t, D> rounded;
    return hn::PromoteTo(D(), hn::LoadU(rounded, static_cast<const hwy::bfloat16_t*>(p.pointer)));
  }
};
/// The first `rest` numbers of one, zeros beyond.
struct LoadRest {
  size_t rest;
  V operator()(FloatPointer p) const {
    HWY_ALIGN float buffer[hn::MaxLanes(D())] = {};
    p.read(static_cast<int64_t>(rest), buffer);
    return hn::Load(D(), buffer);
  }
};

/// Calls body(offset, load, store) for all full vectors, then once for the rest with masked access.
/// `store` gives what it has stored, zeros in lanes beyond the end.
template <class Body>
HWY_INLINE void for_each_vector(int64_t n, const Body& body) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Load load{};
  const auto store = [d](V v, float* p) HWY_ATTR {
    hn::StoreU(v, d, p);
    return v;
  };
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i, load, store);
  if (i == n) return;
  const size_t rest = std::min(static_cast<size_t>(n - i), hn::Lanes(d));
  const LoadRest load_rest{rest};
  const auto store_rest = [d, rest](V v, float* p) HWY_ATTR {
    HWY_ALIGN float buffer[hn::MaxLanes(D())];
    hn::Store(v, d, buffer);
    std::fill(buffer + rest, buffer + hn::MaxLanes(D()), 0.0f);
    std::copy_n(buffer, rest, p);
    return hn::Load(d, buffer);
  };
  body(i, load_rest, store_rest);
}

/// `bad` begins as 0; a lane is NaN for ever once a number in it was NaN or infinite: x - x is 0 or NaN.
HWY_INLINE void watch(V& bad, V stored) { bad = hn::Or(bad, hn::Sub(stored, stored)); }
HWY_INLINE bool all_finite(V bad) {
  const D d;
  return hn::AllTrue(d, hn::Eq(bad, hn::Zero(d)));
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet::cpu
HWY_AFTER_NAMESPACE();

#endif
