#include "kernels/mlp/activate.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/mlp/activate.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/normal-inl.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {

// Elements handled at a time: values and slopes of both factors stay in the first-level cache.
constexpr int64_t kTile = 512;

// An activation's value and derivative at h.
struct Point {
  FloatVec value, slope;
};

template <Activation kAct>
HWY_INLINE Point point(FloatVec h) {
  const Floats d;
  const auto one = hn::Set(d, 1.0F);
  if constexpr (kAct == Activation::linear) {
    return {h, one};
  } else if constexpr (kAct == Activation::relu) {
    // NaN stays NaN, so that a broken run cannot hide behind it; the slope at 0 is 0, as in JAX.
    const auto zero = hn::Zero(d);
    return {hn::IfThenElse(hn::Lt(h, zero), zero, h), hn::IfThenElseZero(hn::Gt(h, zero), one)};
  } else if constexpr (kAct == Activation::silu) {
    // h s, s = 1 / (1 + e^-h); its derivative s + h s (1 - s).
    const auto s = sigmoid(d, h);
    const auto value = hn::Mul(h, s);
    return {value, hn::MulAdd(value, hn::Sub(one, s), s)};
  } else if constexpr (kAct == Activation::gelu_erf) {
    const auto [cdf, density] = normal(d, h);
    return {hn::Mul(h, cdf), hn::MulAdd(h, density, cdf)};
  } else {
    // The tanh form: h (1 + tanh u) / 2 = h s, s = 1 / (1 + e^-2u), 2u = a h + b h^3.
    const auto a = hn::Set(d, 1.5957691216057308F);    // 2 sqrt(2 / pi)
    const auto b = hn::Set(d, 0.071354816272600242F);  // 0.044715 a
    const auto square = hn::Mul(h, h);
    const auto s = sigmoid(d, hn::Mul(h, hn::MulAdd(b, square, a)));
    const auto value = hn::Mul(h, s);
    const auto inner = hn::MulAdd(hn::Mul(b, hn::Set(d, 3.0F)), square, a);  // d(2u)/dh
    return {value, hn::MulAdd(hn::Mul(value, hn::Sub(one, s)), inner, s)};
  }
}

// values[i], and slopes[i] unless null, of n <= kTile elements. The buffers have room for a whole
// last vector; h need not.
template <Activation kAct>
void points(const float* h, float* values, float* slopes, int64_t n) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += lanes) {
    const auto x = i + lanes <= n ? hn::LoadU(d, h + i) : load_first(d, h + i, n - i);
    const Point p = point<kAct>(x);
    hn::Store(p.value, d, values + i);
    if (slopes != nullptr) hn::Store(p.slope, d, slopes + i);
  }
}

void points(Activation act, const float* h, float* values, float* slopes, int64_t n) {
  switch (act) {
    case Activation::linear:
      return points<Activation::linear>(h, values, slopes, n);
    case Activation::relu:
      return points<Activation::relu>(h, values, slopes, n);
    case Activation::gelu:
      return points<Activation::gelu>(h, values, slopes, n);
    case Activation::silu:
      return points<Activation::silu>(h, values, slopes, n);
    case Activation::gelu_erf:
      return points<Activation::gelu_erf>(h, values, slopes, n);
  }
}

struct alignas(64) Tile {
  float values[kTile + HWY_MAX_BYTES / sizeof(float)];
  float slopes[kTile + HWY_MAX_BYTES / sizeof(float)];
};

// to[i] = a[i] b[i] (c[i]), with a and c whole tiles.
void multiply(const float* a, const float* b, const float* c, float* to, int64_t n) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    auto v = hn::Mul(hn::Load(d, a + i), hn::LoadU(d, b + i));
    if (c != nullptr) v = hn::Mul(v, hn::Load(d, c + i));
    hn::StoreU(v, d, to + i);
  }
  for (; i < n; ++i) to[i] = c != nullptr ? a[i] * b[i] * c[i] : a[i] * b[i];
}

void activate_tiles(Activation act0, Activation act1, const float* h0, const float* h1, float* y,
                    int64_t total) {
  Tile t0, t1;
  for (int64_t at = 0; at < total; at += kTile) {
    const int64_t n = std::min(kTile, total - at);
    points(act0, h0 + at, t0.values, nullptr, n);
    if (h1 == nullptr) {
      std::copy_n(t0.values, n, y + at);
    } else if (act1 == Activation::linear) {
      multiply(t0.values, h1 + at, nullptr, y + at, n);
    } else {
      points(act1, h1 + at, t1.values, nullptr, n);
      multiply(t0.values, t1.values, nullptr, y + at, n);
    }
  }
}

void activate_grad_tiles(Activation act0, Activation act1, const float* h0, const float* h1,
                         const float* dy, float* d0, float* d1, float* y, int64_t total) {
  Tile t0, t1;
  for (int64_t at = 0; at < total; at += kTile) {
    const int64_t n = std::min(kTile, total - at);
    points(act0, h0 + at, t0.values, t0.slopes, n);
    if (h1 == nullptr) {
      multiply(t0.slopes, dy + at, nullptr, d0 + at, n);
      if (y != nullptr) std::copy_n(t0.values, n, y + at);
      continue;
    }
    points(act1, h1 + at, t1.values, t1.slopes, n);
    multiply(t0.slopes, dy + at, t1.values, d0 + at, n);
    multiply(t0.values, dy + at, t1.slopes, d1 + at, n);
    if (y != nullptr) multiply(t0.values, t1.values, nullptr, y + at, n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quintet::cpu {
namespace {

HWY_EXPORT(activate_tiles);
HWY_EXPORT(activate_grad_tiles);

}  // namespace

void activate(const Gate& gate, const float* h0, const float* h1, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(activate_tiles)(gate.act0, gate.act1, h0, h1, y, n);
}

void activate_grad(const Gate& gate, const float* h0, const float* h1, const float* dy, float* d0,
                   float* d1, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(activate_grad_tiles)(gate.act0, gate.act1, h0, h1, dy, d0, d1, y, n);
}

}  // namespace quintet::cpu
#endif
