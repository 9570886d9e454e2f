#include "kernels/random/random.h"

#include <algorithm>
#include <cmath>

#include "kernels/random/erfinv.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/random/random.cpp"
// The order of these is Highway's.
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
// clang-format on

#include "kernels/random/threefry-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {

/// erfinv.h.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erfinv(D d, V x) {
  const auto c = [&](float value) HWY_ATTR { return hn::Set(d, value); };
  const V w = hn::Neg(hn::CallLog1p(d, hn::Neg(hn::Mul(x, x))));
  const auto polynomial = [&](V t, const float(&coefficient)[9]) HWY_ATTR {
    V p = c(coefficient[0]);
    for (int i = 1; i < 9; ++i) p = hn::MulAdd(p, t, c(coefficient[i]));
    return p;
  };
  static constexpr float kCentre[9] = {QT_ERFINV_CENTRE}, kTail[9] = {QT_ERFINV_TAIL};
  const auto central = hn::Lt(w, c(5.0f));
  const V near = polynomial(hn::Sub(w, c(2.5f)), kCentre);
  if (hn::AllTrue(d, central)) return hn::Mul(near, x);
  const V far = polynomial(hn::Sub(hn::Sqrt(w), c(3.0f)), kTail);
  return hn::Mul(hn::IfThenElse(central, near, far), x);
}

/// out[i] = transform(bits of element begin + i); chunks run in parallel.
template <typename T, class Transform>
HWY_INLINE void fill(Key key, uint64_t begin, T* HWY_RESTRICT out, size_t count,
                     const Transform& transform) {
  const hn::ScalableTag<uint32_t> du;
  const hn::Rebind<T, decltype(du)> dt;
  const size_t lanes = hn::Lanes(du);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(transform(threefry_bits(du, key, begin + i)), dt, out + i);
  if (i < count) {
    HWY_ALIGN T rest[hn::MaxLanes(du)];
    hn::Store(transform(threefry_bits(du, key, begin + i)), dt, rest);
    std::copy_n(rest, count - i, out + i);
  }
}

void bits(Key key, uint64_t begin, uint32_t* out, size_t count) {
  fill(key, begin, out, count, [](auto x) HWY_ATTR { return x; });
}

void uniform(Key key, uint64_t begin, float* out, size_t count, float low, float high,
             float scale) {
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<uint32_t> du;
  const auto vlow = hn::Set(d, low), vspan = hn::Set(d, high - low), vscale = hn::Set(d, scale);
  fill(key, begin, out, count, [&](auto x) HWY_ATTR {
    const auto u = hn::MulAdd(unit_interval(du, x), vspan, vlow);
    return hn::Mul(hn::Max(vlow, u), vscale);
  });
}

/// scale * sqrt(2) * erfinv(uniform in [low, high)), kept within ±limit before scaling.
void normal(Key key, uint64_t begin, float* out, size_t count, float low, float high,
            float smallest, float largest, float scale) {
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<uint32_t> du;
  const auto vlow = hn::Set(d, low), vspan = hn::Set(d, high - low);
  const auto root_two = hn::Set(d, std::sqrt(2.0f)), vscale = hn::Set(d, scale);
  const auto vsmallest = hn::Set(d, smallest), vlargest = hn::Set(d, largest);
  fill(key, begin, out, count, [&](auto x) HWY_ATTR {
    const auto u = hn::Max(vlow, hn::MulAdd(unit_interval(du, x), vspan, vlow));
    const auto z = hn::Mul(erfinv(d, u), root_two);
    return hn::Mul(hn::Min(hn::Max(z, vsmallest), vlargest), vscale);
  });
}

void bernoulli(Key key, uint64_t begin, uint8_t* out, size_t count, float p) {
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<uint32_t> du;
  const hn::ScalableTag<int32_t> di;
  const hn::Rebind<uint8_t, decltype(di)> db;
  const auto vp = hn::Set(d, p);
  fill(key, begin, out, count, [&](auto x) HWY_ATTR {
    const auto kept = hn::RebindMask(di, hn::Lt(unit_interval(du, x), vp));
    return hn::DemoteTo(db, hn::IfThenElseZero(kept, hn::Set(di, 1)));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quintet {
namespace {

HWY_EXPORT(bits);
HWY_EXPORT(uniform);
HWY_EXPORT(normal);
HWY_EXPORT(bernoulli);

/// Calls part(first, count) for chunks that cover [0, size); small arrays stay on this thread.
template <class Part>
void in_chunks(size_t size, const Part& part) {
  constexpr size_t kChunk = 1 << 14;
  const auto chunks = static_cast<int64_t>((size + kChunk - 1) / kChunk);
#pragma omp parallel for schedule(static) if (chunks > 1)
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const size_t first = static_cast<size_t>(chunk) * kChunk;
    part(first, std::min(kChunk, size - first));
  }
}

}  // namespace

void fill_bits(Key key, uint64_t begin, std::span<uint32_t> out) {
  in_chunks(out.size(), [&](size_t first, size_t count) {
    HWY_DYNAMIC_DISPATCH(bits)(key, begin + first, out.data() + first, count);
  });
}

void fill_uniform(Key key, uint64_t begin, std::span<float> out, float low, float high,
                  float scale) {
  in_chunks(out.size(), [&](size_t first, size_t count) {
    HWY_DYNAMIC_DISPATCH(uniform)(key, begin + first, out.data() + first, count, low, high, scale);
  });
}

void fill_normal(Key key, uint64_t begin, std::span<float> out, float scale) {
  const float low = std::nextafter(-1.0f, 0.0f);
  in_chunks(out.size(), [&](size_t first, size_t count) {
    HWY_DYNAMIC_DISPATCH(normal)
    (key, begin + first, out.data() + first, count, low, 1.0f, -HUGE_VALF, HUGE_VALF, scale);
  });
}

void fill_truncated_normal(Key key, uint64_t begin, std::span<float> out, float low, float high,
                           float scale) {
  const float root_two = std::sqrt(2.0f);
  const float from = std::erf(low / root_two), to = std::erf(high / root_two);
  // Rounding must not let a draw reach the open bounds.
  const float smallest = std::nextafter(low, HUGE_VALF), largest = std::nextafter(high, -HUGE_VALF);
  in_chunks(out.size(), [&](size_t first, size_t count) {
    HWY_DYNAMIC_DISPATCH(normal)
    (key, begin + first, out.data() + first, count, from, to, smallest, largest, scale);
  });
}

void fill_bernoulli(Key key, uint64_t begin, std::span<uint8_t> out, float p) {
  in_chunks(out.size(), [&](size_t first, size_t count) {
    HWY_DYNAMIC_DISPATCH(bernoulli)(key, begin + first, out.data() + first, count, p);
  });
}

}  // namespace quintet
#endif
