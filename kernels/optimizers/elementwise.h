#pragma once
// Optimizer updates in which every number goes its own way: AdamW, Lion, SGD. One pass over memory,
// in place, on a block of one thread: callers cut parameters into blocks. Highway, float32; gradients float32 or bfloat16.
//
//   adam_update(n, step, gradient, param, mu, nu);   // 28 bytes of traffic a parameter
//
// Each says whether everything it wrote is finite.

#include <cstdint>
#include <limits>

#include "kernels/optimizers/float_pointer.h"

namespace quintet::cpu {

/// What becomes of a gradient before the optimizer sees it: clamp(scale * g, -limit, limit).
struct GradientUse {
  float scale = 1.0f;
  float limit = std::numeric_limits<float>::infinity();
};

/// optax's scale_by_adam, add_decayed_weights and scale_by_learning_rate in one:
///   mu = b1 mu + (1 - b1) g;  nu = b2 nu + (1 - b2) g^2
///   param -= rate ((mu_use mu + gradient_use g) / (sqrt(nu_use nu + eps_root) + eps) + decay param)
/// The *_use are bias corrections, 1 / (1 - b^t); gradient_use is not 0 with Nesterov's momentum.
struct AdamStep {
  float b1, one_minus_b1, b2, one_minus_b2;
  float mu_use, gradient_use, nu_use;
  float eps, eps_root, rate, decay;
};
bool adam_update(int64_t n, const AdamStep& step, GradientUse use, FloatPointer gradient,
                 float* param, float* mu, float* nu);

///   param -= rate (sign(b1 mu + (1 - b1) g) + decay param);  mu = b2 mu + (1 - b2) g
struct LionStep {
  float b1, one_minus_b1, b2, one_minus_b2, rate, decay;
};
bool lion_update(int64_t n, const LionStep& step, GradientUse use, FloatPointer gradient,
                 float* param, float* mu);

///   trace = g + momentum trace;  param -= rate (nesterov ? g + momentum trace : trace)
/// Without momentum trace is null and param -= rate g.
struct SgdStep {
  float momentum, rate;
  bool nesterov;
};
bool sgd_update(int64_t n, const SgdStep& step, GradientUse use, FloatPointer gradient,
                float* param, float* trace);

/// Sum of squares of n numbers: float32 within runs of 1024, double across them. NaN and infinities
/// show.
double sum_of_squares_block(int64_t n, FloatPointer values);

}  // namespace quintet::cpu
