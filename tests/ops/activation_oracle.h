#pragma once
// Activations of an MLP and their derivatives, in double precision.

#include <cmath>
#include <numbers>

#include "kernels/mlp/mlp.h"

namespace quintet::testing {

inline double activate(Activation act, double x) {
  switch (act) {
    case Activation::linear:
      return x;
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::gelu:
      return 0.5 * x *
             (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::gelu_erf:
      return x * 0.5 * std::erfc(-x / std::numbers::sqrt2);
  }
  return std::nan("");
}

inline double slope(Activation act, double x) {
  if (act == Activation::relu) return x > 0 ? 1 : 0;
  const double step = 1e-5;
  return (activate(act, x + step) - activate(act, x - step)) / (2 * step);
}

/// Of the first or second product.
inline Activation activation(const Attrs& attrs, size_t branch) {
  return static_cast<Activation>(attrs.get<int64_t>(branch == 0 ? "act0" : "act1"));
}

}  // namespace quintet::testing
