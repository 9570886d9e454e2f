#include "runtime/optim/optax/optax_schedules.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/check.h"
#include "runtime/optim/checked_rate.h"

namespace quintet {
namespace {

constexpr float kPi = 3.14159265358979323846f;

Boundaries sorted(Boundaries boundaries, const char* what) {
  std::ranges::sort(boundaries);
  for (size_t i = 0; i < boundaries.size(); ++i) {
    const auto [step, scale] = boundaries[i];
    QT_CHECK(scale >= 0, "{}: the scale at step {} must be 0 or more, got {}", what, step, scale);
    QT_CHECK(step > (i == 0 ? 0 : boundaries[i - 1].first),
             "{}: the boundary {} must be above 0, and no two the same", what, step);
  }
  return boundaries;
}

}  // namespace

Schedule polynomial_schedule(const PolynomialOptions& o) {
  checked_rate(o.init_value, "polynomial_schedule: init_value");
  checked_rate(o.end_value, "polynomial_schedule: end_value");
  if (o.transition_steps <= 0) return constant_schedule(o.init_value);
  const int64_t begin = std::max<int64_t>(o.transition_begin, 0);
  return [=](int64_t step) {
    const int64_t count = std::clamp<int64_t>(step - begin, 0, o.transition_steps);
    const float left = 1.0f - static_cast<float>(count) / static_cast<float>(o.transition_steps);
    return f32(o.init_value - o.end_value) * std::pow(left, f32(o.power)) + f32(o.end_value);
  };
}

Schedule exponential_decay(const ExponentialDecayOptions& o) {
  checked_rate(o.init_value, "exponential_decay: init_value");
  checked_rate(o.decay_rate, "exponential_decay: decay_rate");
  if (o.transition_steps <= 0 || o.decay_rate == 0) return constant_schedule(o.init_value);
  const int64_t begin = std::max<int64_t>(o.transition_begin, 0);
  return [=](int64_t step) {
    const int64_t count = step - begin;
    float periods = static_cast<float>(count) / static_cast<float>(o.transition_steps);
    if (o.staircase) periods = std::floor(periods);
    float rate = f32(o.init_value);
    if (count > 0) rate *= std::pow(f32(o.decay_rate), periods);
    if (!o.end_value) return rate;
    return o.decay_rate < 1 ? std::max(rate, f32(*o.end_value)) : std::min(rate, f32(*o.end_value));
  };
}

Schedule piecewise_constant_schedule(double init_value, Boundaries boundaries) {
  checked_rate(init_value, "piecewise_constant_schedule: init_value");
  return [init_value,
          boundaries = sorted(std::move(boundaries), "piecewise_constant_schedule")](int64_t step) {
    float rate = f32(init_value);
    for (const auto& [boundary, scale] : boundaries)
      if (step >= boundary) rate *= f32(scale);
    return rate;
  };
}

Schedule piecewise_interpolate_schedule(const std::string& type, double init_value,
                                        Boundaries boundaries) {
  checked_rate(init_value, "piecewise_interpolate_schedule: init_value");
  QT_CHECK(type == "linear" || type == "cosine",
           "piecewise_interpolate_schedule: interpolate_type must be 'linear' or 'cosine', got "
           "'{}'",
           type);
  boundaries = sorted(std::move(boundaries), "piecewise_interpolate_schedule");
  return [=](int64_t step) {
    double from = init_value;
    int64_t begin = 0;
    for (const auto& [end, scale] : boundaries) {
      const double to = from * scale;
      if (step < end) {
        const float part = static_cast<float>(step - begin) / static_cast<float>(end - begin);
        return type == "linear" ? f32(to - from) * part + f32(from)
                                : f32(to) + f32((from - to) / 2) * (std::cos(kPi * part) + 1.0f);
      }
      from = to;
      begin = end;
    }
    return f32(from);
  };
}

Schedule linear_onecycle_schedule(const OneCycleOptions& o) {
  QT_CHECK(o.transition_steps > 0, "linear_onecycle_schedule: transition_steps must be positive");
  const auto at = [&](double part) {
    return static_cast<int64_t>(part * static_cast<double>(o.transition_steps));
  };
  return piecewise_interpolate_schedule("linear", o.peak_value / o.div_factor,
                                        {{at(o.pct_start), o.div_factor},
                                         {at(o.pct_final), 1 / o.div_factor},
                                         {o.transition_steps, 1 / o.final_div_factor}});
}

Schedule cosine_onecycle_schedule(const OneCycleOptions& o) {
  QT_CHECK(o.transition_steps > 0, "cosine_onecycle_schedule: transition_steps must be positive");
  const auto start = static_cast<int64_t>(o.pct_start * static_cast<double>(o.transition_steps));
  return piecewise_interpolate_schedule(
      "cosine", o.peak_value / o.div_factor,
      {{start, o.div_factor}, {o.transition_steps, 1 / (o.div_factor * o.final_div_factor)}});
}

Schedule warmup_exponential_decay_schedule(WarmupExponentialOptions o) {
  o.decay.init_value = o.peak_value;
  return join_schedules(
      {linear_schedule(o.init_value, o.peak_value, o.warmup_steps), exponential_decay(o.decay)},
      {o.warmup_steps});
}

Schedule join_schedules(std::vector<Schedule> schedules, std::vector<int64_t> boundaries) {
  QT_CHECK(schedules.size() == boundaries.size() + 1,
           "join_schedules: {} schedules need {} boundaries, got {}", schedules.size(),
           std::max<size_t>(schedules.size(), 1) - 1, boundaries.size());
  QT_CHECK(std::ranges::is_sorted(boundaries), "join_schedules: boundaries must not fall");
  return [schedules = std::move(schedules), boundaries = std::move(boundaries)](int64_t step) {
    size_t i = boundaries.size();
    while (i > 0 && step < boundaries[i - 1]) --i;
    return schedules[i](i == 0 ? step : step - boundaries[i - 1]);
  };
}

Schedule sgdr_schedule(const std::vector<WarmupCosineOptions>& cosine_kwargs) {
  std::vector<Schedule> schedules;
  std::vector<int64_t> boundaries;
  int64_t end = 0;
  for (const WarmupCosineOptions& o : cosine_kwargs) {
    if (!schedules.empty()) boundaries.push_back(end);
    schedules.push_back(warmup_cosine_decay_schedule(o));
    end += o.decay_steps;
  }
  return join_schedules(std::move(schedules), std::move(boundaries));
}

}  // namespace quintet
