#pragma once
// Schedules of optax beside those of runtime/optim/schedules.h, with its arguments; float32 as optax computes them.
//
//   const Schedule rate = join_schedules({linear_schedule(0, 0.1, 100), exponential_decay({...})}, {100});

#include <optional>
#include <vector>

#include "runtime/optim/schedules.h"

namespace quintet {

struct PolynomialOptions {
  double init_value = 0, end_value = 0, power = 1;
  int64_t transition_steps = 0, transition_begin = 0;
};
Schedule polynomial_schedule(const PolynomialOptions& options);

struct ExponentialDecayOptions {
  double init_value = 0;
  int64_t transition_steps = 0;
  double decay_rate = 0;
  int64_t transition_begin = 0;
  bool staircase = false;
  std::optional<double> end_value{};
};
Schedule exponential_decay(const ExponentialDecayOptions& options);

/// Numbers of steps, and by what the rate is multiplied there.
using Boundaries = std::vector<std::pair<int64_t, double>>;
Schedule piecewise_constant_schedule(double init_value, Boundaries boundaries_and_scales);
/// interpolate_type: 'linear' or 'cosine'.
Schedule piecewise_interpolate_schedule(const std::string& interpolate_type, double init_value,
                                        Boundaries boundaries_and_scales);

struct OneCycleOptions {
  int64_t transition_steps = 0;
  double peak_value = 0, pct_start = 0.3;
  double pct_final = 0.85;  // of the linear one
  double div_factor = 25.0, final_div_factor = 1e4;
};
Schedule linear_onecycle_schedule(const OneCycleOptions& options);
Schedule cosine_onecycle_schedule(const OneCycleOptions& options);

struct WarmupExponentialOptions {
  double init_value = 0, peak_value = 0;
  int64_t warmup_steps = 0;
  ExponentialDecayOptions decay{};  // its init_value is peak_value
};
Schedule warmup_exponential_decay_schedule(WarmupExponentialOptions options);

/// schedules[i + 1] from step boundaries[i] on, counted from there.
Schedule join_schedules(std::vector<Schedule> schedules, std::vector<int64_t> boundaries);
/// Cosine decays with warm restarts.
Schedule sgdr_schedule(const std::vector<WarmupCosineOptions>& cosine_kwargs);

}  // namespace quintet
