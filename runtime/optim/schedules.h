#pragma once
// Learning rates as functions of the number of updates made before, in float32 as the references
// compute them. A state of rank 0 "step" counts from 0, so the first update sees schedule(0).
//
//   const Schedule rate =
//       create_learning_rate_scheduler({.base_learning_rate = 1.0, .warmup_steps = 10000});
//   optimizer->update({.step = step, .learning_rate = rate(step)}, slots);

#include <cstdint>
#include <functional>
#include <string>

namespace quintet {

using Schedule = std::function<float(int64_t step)>;

/// As the references' numbers of configurations become those of arrays.
inline float f32(double x) { return static_cast<float>(x); }

/// utils.create_learning_rate_scheduler: the product of named factors, never below
/// min_learning_rate (so a warm-up starts at 1e-8, not 0).
struct LearningRateOptions {
  /// Joined by '*': constant, linear_warmup, linear_decay, rsqrt_decay, rsqrt_normalized_decay,
  /// decay_every, cosine_decay. Any other is a usage error when the schedule is made.
  std::string factors = "constant * linear_warmup * rsqrt_decay";
  double base_learning_rate = 0.5;
  int64_t warmup_steps = 1000;
  double decay_factor = 0.5;
  int64_t steps_per_decay = 20000;
  int64_t steps_per_cycle = 100000;
  int64_t step_offset = 0;
  double min_learning_rate = 1e-8;
};
Schedule create_learning_rate_scheduler(const LearningRateOptions& options);

/// optax.constant_schedule(value).
Schedule constant_schedule(double value);
/// optax.linear_schedule: from init_value to end_value over transition_steps after
/// transition_begin.
Schedule linear_schedule(double init_value, double end_value, int64_t transition_steps,
                         int64_t transition_begin = 0);
/// optax.cosine_decay_schedule: init_value down to alpha * init_value over decay_steps.
Schedule cosine_decay_schedule(double init_value, int64_t decay_steps, double alpha = 0.0,
                               double exponent = 1.0);

/// optax.warmup_cosine_decay_schedule: linear from init_value to peak_value over warmup_steps, then
/// a cosine to end_value at decay_steps, which counts the warm-up.
struct WarmupCosineOptions {
  double init_value = 0.0, peak_value = 0.0;
  int64_t warmup_steps = 0, decay_steps = 0;
  double end_value = 0.0, exponent = 1.0;
};
Schedule warmup_cosine_decay_schedule(const WarmupCosineOptions& options);

}  // namespace quintet
