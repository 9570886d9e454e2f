#include "runtime/optim/schedules.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/optim/checked_rate.h"

namespace quintet {
namespace {

constexpr float kPi = 3.14159265358979323846f;

/// One factor: what the product so far is multiplied by, at `step` (offset taken off, not below 0).
using Factor = float (*)(const LearningRateOptions&, float step);

float base(const LearningRateOptions& o) { return static_cast<float>(o.base_learning_rate); }
float warmup(const LearningRateOptions& o) { return static_cast<float>(o.warmup_steps); }

float constant(const LearningRateOptions& o, float) { return base(o); }
float linear_warmup(const LearningRateOptions& o, float step) {
  return std::min(1.0f, step / warmup(o));
}
float linear_decay(const LearningRateOptions& o, float step) {
  const float falling = 1.0f + static_cast<float>(o.decay_factor) * (warmup(o) - step);
  return base(o) * std::min(step / warmup(o), falling);
}
float rsqrt_decay(const LearningRateOptions& o, float step) {
  return 1.0f / std::sqrt(std::max(step, warmup(o)));
}
float rsqrt_normalized_decay(const LearningRateOptions& o, float step) {
  return std::sqrt(warmup(o)) / std::sqrt(std::max(step, warmup(o)));
}
float decay_every(const LearningRateOptions& o, float step) {
  const float periods = std::floor(step / static_cast<float>(o.steps_per_decay));
  return std::pow(static_cast<float>(o.decay_factor), periods);
}
float cosine_decay(const LearningRateOptions& o, float step) {
  const float progress = std::max(0.0f, (step - warmup(o)) / static_cast<float>(o.steps_per_cycle));
  return std::max(0.0f, 0.5f * (1.0f + std::cos(kPi * (progress - std::floor(progress)))));
}

struct NamedFactor {
  const char* name;
  Factor factor;
};
constexpr NamedFactor kFactors[] = {
    {"constant", constant},         {"linear_warmup", linear_warmup},
    {"linear_decay", linear_decay}, {"rsqrt_decay", rsqrt_decay},
    {"decay_every", decay_every},   {"rsqrt_normalized_decay", rsqrt_normalized_decay},
    {"cosine_decay", cosine_decay},
};

std::vector<std::string> split_factors(const std::string& factors) {
  std::vector<std::string> names;
  std::string name;
  for (char c : factors + "*") {
    if (c == '*') {
      names.push_back(std::move(name));
      name.clear();
    } else if (c != ' ' && c != '\t') {
      name.push_back(c);
    }
  }
  return names;
}

Factor factor_named(const std::string& name) {
  std::vector<std::string> known;
  for (const NamedFactor& f : kFactors) {
    if (name == f.name) return f.factor;
    known.push_back(f.name);
  }
  std::string list;
  for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
  fail(ExitCode::kUsage, "create_learning_rate_scheduler: factors: '{}' is not known; known: {}",
       name, list);
}

}  // namespace

Schedule create_learning_rate_scheduler(const LearningRateOptions& options) {
  checked_rate(options.base_learning_rate, "create_learning_rate_scheduler: base_learning_rate");
  checked_rate(options.min_learning_rate, "create_learning_rate_scheduler: min_learning_rate");
  std::vector<Factor> factors;
  for (const std::string& name : split_factors(options.factors))
    factors.push_back(factor_named(name));
  return [options, factors](int64_t step) {
    const auto s = static_cast<float>(std::max<int64_t>(0, step - options.step_offset));
    float rate = 1.0f;
    for (Factor factor : factors) rate *= factor(options, s);
    return std::max(rate, static_cast<float>(options.min_learning_rate));
  };
}

Schedule constant_schedule(double value) {
  checked_rate(value, "constant_schedule: value");
  return [rate = static_cast<float>(value)](int64_t) { return rate; };
}

Schedule linear_schedule(double init_value, double end_value, int64_t transition_steps,
                         int64_t transition_begin) {
  checked_rate(init_value, "linear_schedule: init_value");
  checked_rate(end_value, "linear_schedule: end_value");
  if (transition_steps <= 0) return constant_schedule(init_value);
  return [=](int64_t step) {
    const int64_t count = std::clamp<int64_t>(step - transition_begin, 0, transition_steps);
    const float left = 1.0f - static_cast<float>(count) / static_cast<float>(transition_steps);
    return static_cast<float>(init_value - end_value) * left + static_cast<float>(end_value);
  };
}

Schedule cosine_decay_schedule(double init_value, int64_t decay_steps, double alpha,
                               double exponent) {
  checked_rate(init_value, "cosine_decay_schedule: init_value");
  QT_CHECK(decay_steps > 0, "cosine_decay_schedule: decay_steps must be positive, got {}",
           decay_steps);
  return [=](int64_t step) {
    const auto count = static_cast<float>(std::min(step, decay_steps));
    const float cosine = 0.5f * (1.0f + std::cos(kPi * count / static_cast<float>(decay_steps)));
    const float decayed =
        static_cast<float>(1.0 - alpha) * std::pow(cosine, static_cast<float>(exponent)) +
        static_cast<float>(alpha);
    return static_cast<float>(init_value) * decayed;
  };
}

Schedule warmup_cosine_decay_schedule(const WarmupCosineOptions& o) {
  checked_rate(o.init_value, "warmup_cosine_decay_schedule: init_value");
  checked_rate(o.peak_value, "warmup_cosine_decay_schedule: peak_value");
  checked_rate(o.end_value, "warmup_cosine_decay_schedule: end_value");
  QT_CHECK(
      o.decay_steps > o.warmup_steps,
      "warmup_cosine_decay_schedule: decay_steps ({}) counts the warm-up and must be larger than "
      "warmup_steps ({}); lower warmup_steps (--gin.WARMUP_STEPS of quintet's own gin files) or "
      "train "
      "longer",
      o.decay_steps, o.warmup_steps);
  const double alpha = o.peak_value == 0.0 ? 0.0 : o.end_value / o.peak_value;
  const Schedule rise = linear_schedule(o.init_value, o.peak_value, o.warmup_steps);
  const Schedule fall =
      cosine_decay_schedule(o.peak_value, o.decay_steps - o.warmup_steps, alpha, o.exponent);
  return [rise, fall, warmup_steps = o.warmup_steps](int64_t step) {
    return step < warmup_steps ? rise(step) : fall(step - warmup_steps);
  };
}

}  // namespace quintet
