#pragma once
// Optax's elementary transformations in which every number goes its own way, each as what it does to one
// number: the same text runs on CPUs (rules_cpu.h) and, one launch for all parameters, on GPUs (rules.cu).
//
//   struct Rms {
//     float decay, one_minus_decay, eps;
//     static constexpr int kStates = 1;  // arrays like the parameter: Number::first, then second
//     QT_RULE void operator()(float& g, Number& x) const { ... }
//   };
//
// A rule changes the gradient in place. Its numbers are those of one update; options, schedules and counts
// are runtime/optim/optax's.

#include <cmath>
#include <variant>

#include "kernels/optimizers/elementwise.h"

#ifdef __CUDACC__
#define QT_RULE __host__ __device__
#else
#define QT_RULE
#endif

namespace quintet {

/// One number of a parameter, and what is updated with it.
struct Number {
  float param;  // as before the update
  float first = 0, second = 0;
  float factor = 1;    // RuleState::factor
  bool found = false;  // to set: RuleState::found
};

namespace rules {

QT_RULE inline float inverse_root(float x) { return 1.0f / std::sqrt(x); }

/// a + b of products that are rounded by themselves, as in the reference, on a GPU too: where the sign of a sum
/// near zero matters.
QT_RULE inline float sum_of_rounded(float a, float x, float b, float y) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(__fmul_rn(a, x), __fmul_rn(b, y));
#else
  return a * x + b * y;
#endif
}

/// Clips and scales alone: a GradientUse.
struct Use {
  static constexpr int kStates = 0;
  QT_RULE void operator()(float&, Number&) const {}
};

/// The parameter takes what the chain made of its gradient.
struct Apply {
  static constexpr int kStates = 0;
  using UpdatesParam = void;
  QT_RULE void operator()(float& g, Number& x) const { x.param += g; }
};

struct Zero {
  static constexpr int kStates = 0;
  QT_RULE void operator()(float& g, Number&) const { g = 0; }
};

struct Decay {
  float decay;
  static constexpr int kStates = 0;
  QT_RULE void operator()(float& g, Number& x) const { g += decay * x.param; }
};

struct Trace {
  float momentum;
  bool nesterov;
  static constexpr int kStates = 1;
  QT_RULE void operator()(float& g, Number& x) const {
    x.first = g + momentum * x.first;
    g = nesterov ? g + momentum * x.first : x.first;
  }
};

struct Lion {
  cpu::LionStep s;
  static constexpr int kStates = 1;
  QT_RULE void operator()(float& g, Number& x) const {
    const float blend = sum_of_rounded(s.one_minus_b1, g, s.b1, x.first);
    x.first = s.one_minus_b2 * g + s.b2 * x.first;
    g = blend == 0 ? 0.0f : std::copysign(1.0f, blend);
  }
};

struct Adam {
  cpu::AdamStep s;
  static constexpr int kStates = 2;
  QT_RULE void operator()(float& g, Number& x) const {
    x.first = s.one_minus_b1 * g + s.b1 * x.first;
    x.second = s.one_minus_b2 * (g * g) + s.b2 * x.second;
    g = (s.mu_use * x.first + s.gradient_use * g) /
        (std::sqrt(s.nu_use * x.second + s.eps_root) + s.eps);
  }
};

struct Belief {
  cpu::AdamStep s;
  static constexpr int kStates = 2;
  QT_RULE void operator()(float& g, Number& x) const {
    const float surprise = g - x.first;
    x.first = s.one_minus_b1 * g + s.b1 * x.first;
    x.second = s.one_minus_b2 * (surprise * surprise) + s.b2 * x.second + s.eps_root;
    g = s.mu_use * x.first / (std::sqrt(s.nu_use * x.second) + s.eps);
  }
};

struct Yogi {
  cpu::AdamStep s;
  static constexpr int kStates = 2;
  QT_RULE void operator()(float& g, Number& x) const {
    const float square = g * g, above = x.second - square;
    const float sign = above > 0 ? 1.0f : above < 0 ? -1.0f : above;
    x.first = s.one_minus_b1 * g + s.b1 * x.first;
    x.second -= s.one_minus_b2 * sign * square;
    g = s.mu_use * x.first / (std::sqrt(s.nu_use * x.second + s.eps_root) + s.eps);
  }
};

/// rectifier 0: the variance cannot be told yet, and the step is that of momentum.
struct RectifiedAdam {
  cpu::AdamStep s;
  float rectifier;
  static constexpr int kStates = 2;
  QT_RULE void operator()(float& g, Number& x) const {
    x.first = s.one_minus_b1 * g + s.b1 * x.first;
    x.second = s.one_minus_b2 * (g * g) + s.b2 * x.second;
    const float mean = s.mu_use * x.first + s.gradient_use * g;
    g = rectifier == 0 ? mean
                       : rectifier * mean / (std::sqrt(s.nu_use * x.second + s.eps_root) + s.eps);
  }
};

/// second: the largest gradient, forgotten slowly.
struct Adamax {
  cpu::AdamStep s;
  static constexpr int kStates = 2;
  QT_RULE void operator()(float& g, Number& x) const {
    const float size = std::abs(g) + s.eps, before = s.b2 * x.second;
    x.first = s.one_minus_b1 * g + s.b1 * x.first;
    x.second = size > before ? size : before;
    g = s.mu_use * x.first / x.second;
  }
};

struct RootOfSum {
  float eps;
  static constexpr int kStates = 1;
  QT_RULE void operator()(float& g, Number& x) const {
    x.first = g * g + x.first;
    g *= x.first > 0 ? inverse_root(x.first + eps) : 0.0f;
  }
};

struct Rms {
  float decay, one_minus_decay, eps;
  static constexpr int kStates = 1;
  QT_RULE void operator()(float& g, Number& x) const {
    x.first = one_minus_decay * (g * g) + decay * x.first;
    g *= inverse_root(x.first + eps);
  }
};

struct StandardDeviation {
  float decay, one_minus_decay, eps;
  static constexpr int kStates = 2;
  QT_RULE void operator()(float& g, Number& x) const {
    x.first = one_minus_decay * g + decay * x.first;
    x.second = one_minus_decay * (g * g) + decay * x.second;
    g *= inverse_root(x.second - x.first * x.first + eps);
  }
};

struct Ema {
  float decay, one_minus_decay, use;  // use: 1, or the correction of the bias
  static constexpr int kStates = 1;
  QT_RULE void operator()(float& g, Number& x) const {
    x.first = one_minus_decay * g + decay * x.first;
    g = use * x.first;
  }
};

/// first: the noise, as it was drawn.
struct AddNoise {
  float deviation;
  static constexpr int kStates = 1;
  QT_RULE void operator()(float& g, Number& x) const { g += deviation * x.first; }
};

struct ZeroNans {
  static constexpr int kStates = 0;
  QT_RULE void operator()(float& g, Number& x) const {
    if (g == g) return;
    g = 0;
    x.found = true;
  }
};

/// optax.MultiSteps: first takes gradients in, and what has come together is given on and forgotten.
struct Accumulate {
  float count;  // of gradients with this one
  bool mean, emits;
  static constexpr int kStates = 1;
  QT_RULE void operator()(float& g, Number& x) const {
    const float sum = mean ? x.first + (g - x.first) / count : g + x.first;
    x.first = emits ? 0.0f : sum;
    g = emits ? sum : 0.0f;
  }
};

/// jestimator's Amos; factor is eta, the size that numbers of the parameter are expected to have.
struct Amos {
  float beta, one_minus_beta, correction;  // 1 - beta^t
  float rate, rate_squared, c_root, d_coef, extra_l2, epsilon;
  static constexpr int kStates = 2;
  struct Step {
    float slower, decay, rate;  // the update: slower * (decay * param - rate * gradient)
  };
  /// Of numbers that share v and b: `square` is the mean of their gradients' squares.
  QT_RULE Step step(float square, float eta, float& v, float& b) const {
    v = v * beta + square * one_minus_beta;
    const float inverse = correction / (v > epsilon ? v : epsilon);
    const float gamma = inverse_root(1.0f + c_root * b) * rate_squared * inverse * square;
    const float initial = rate * eta;
    const float slower = 1.0f / (1.0f + d_coef * std::sqrt(initial) * b);
    b = b + gamma * (1.0f + b);
    return {slower, -0.5f * gamma - extra_l2, initial * std::sqrt(inverse)};
  }
  QT_RULE void operator()(float& g, Number& x) const {
    const Step s = step(g * g, x.factor, x.first, x.second);
    g = s.slower * (s.decay * x.param - s.rate * g);
  }
};

/// LAMB's and LARS' layerwise rates: norm of the parameter over norm of its update, both of the whole array.
struct TrustRatio {
  float coefficient, min_norm, eps;
  static constexpr int kStates = 0;
  QT_RULE float norm(double squares) const {
    const auto root = static_cast<float>(std::sqrt(squares));
    return root <= min_norm ? min_norm : root;
  }
  /// Number::factor, of the sums of squares of the parameter and of the gradient.
  QT_RULE float factor(const double* squares) const {
    const float param = norm(squares[0]), update = norm(squares[1]);
    return param == 0 || update == 0 ? 1.0f : coefficient * param / (update + eps);
  }
  QT_RULE void operator()(float& g, Number& x) const { g *= x.factor; }
};

}  // namespace rules

using UpdateRule = std::variant<rules::Use, rules::Apply, rules::Zero, rules::Decay, rules::Trace,
                                rules::Lion, rules::Adam, rules::Belief, rules::Yogi,
                                rules::RectifiedAdam, rules::Adamax, rules::RootOfSum, rules::Rms,
                                rules::StandardDeviation, rules::Ema, rules::ZeroNans,
                                rules::AddNoise, rules::Accumulate, rules::Amos, rules::TrustRatio>;

template <typename Rule>
concept UpdatesParam = requires {
  typename Rule::UpdatesParam;
};
template <typename Rule>
concept TakesSquares = requires(const Rule& rule, const double* squares) {
  rule.factor(squares);
};

}  // namespace quintet
