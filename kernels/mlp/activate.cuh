#pragma once
// Activations and their derivatives at one number; mlp.h names them.

#include "kernels/mlp/mlp.h"
#include "kernels/simt/simt.cuh"

namespace quintet::QT_GPU {

/// An activation's value and derivative; as it stands, of a factor that is not there.
struct Point {
  float value = 1.0f, slope = 0.0f;
};

/// 1 / (1 + e^-x). kFast: relative error 1e-6, for results that are rounded to 16 bits.
template <bool kFast>
QT_DEVICE float sigmoid(float x) {
  constexpr float kLog2E = 1.4426950408889634f;
  if constexpr (kFast)
    return simt::rcp_approx(1.0f + simt::exp2_approx(-kLog2E * x));
  else
    return 1.0f / (1.0f + expf(-x));
}

template <Activation kAct, bool kFast>
QT_DEVICE Point activation(float h) {
  if constexpr (kAct == Activation::linear) {
    return {h, 1.0f};
  } else if constexpr (kAct == Activation::relu) {
    // NaN stays NaN, so that a broken run cannot hide behind it; the slope at 0 is 0, as in JAX.
    return {h < 0.0f ? 0.0f : h, h > 0.0f ? 1.0f : 0.0f};
  } else if constexpr (kAct == Activation::silu) {
    // h s; its derivative s + h s (1 - s).
    const float s = sigmoid<kFast>(h), value = h * s;
    return {value, s + value * (1.0f - s)};
  } else if constexpr (kAct == Activation::gelu_erf) {
    const float cdf = 0.5f * erfcf(-0.7071067811865476f * h);
    return {h * cdf, cdf + h * (0.3989422804014327f * expf(-0.5f * h * h))};
  } else {
    // The tanh form: h (1 + tanh u) / 2 = h s, s = 1 / (1 + e^-2u), 2u = a h + b h^3.
    constexpr float kA = 1.5957691216057308f;    // 2 sqrt(2 / pi)
    constexpr float kB = 0.071354816272600242f;  // 0.044715 a
    const float square = h * h;
    const float s = sigmoid<kFast>(h * (kA + kB * square)), value = h * s;
    const float inner = kA + 3.0f * kB * square;  // d(2u)/dh
    // Far out the cubic overflows where 1 - s is 0.
    const float rest = value * (1.0f - s);
    return {value, rest == 0.0f ? s : s + rest * inner};
  }
}

/// The same of an activation known at run time.
template <bool kFast>
QT_DEVICE Point activation(Activation act, float h) {
  switch (act) {
    case Activation::relu:
      return activation<Activation::relu, kFast>(h);
    case Activation::gelu:
      return activation<Activation::gelu, kFast>(h);
    case Activation::silu:
      return activation<Activation::silu, kFast>(h);
    case Activation::gelu_erf:
      return activation<Activation::gelu_erf, kFast>(h);
    default:
      return {h, 1.0f};
  }
}

}  // namespace quintet::QT_GPU
