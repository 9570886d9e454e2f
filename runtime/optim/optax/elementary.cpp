// Optax's elementary transformations and chains that optax.h declares.

#include "runtime/base/check.h"
#include "runtime/optim/optax/elementwise.h"
#include "runtime/optim/optax/wrappers.h"

namespace quintet {

float value_at(const ScalarOrSchedule& rate, int32_t count) {
  if (const double* constant = std::get_if<double>(&rate)) return f32(*constant);
  return std::get<Schedule>(rate)(count);
}

void check_rate(double beta, const char* what) {
  QT_CHECK(beta >= 0 && beta < 1, "{} must be at least 0 and below 1, got {}", what, beta);
}

TransformationPtr identity() { return elementwise({.fuses = Fusable::Identity{}}); }

TransformationPtr clip(double max_delta) {
  QT_CHECK(max_delta > 0, "clip: max_delta must be positive, got {}", max_delta);
  return elementwise({.step = [=](int32_t) { return RuleStep{.use = {.limit = f32(max_delta)}}; },
                      .fuses = Fusable::Clip{max_delta}});
}

TransformationPtr scale_by_adam(const AdamOptions& o) {
  check_rate(o.b1, "scale_by_adam: b1");
  check_rate(o.b2, "scale_by_adam: b2");
  return elementwise(
      {.slots = {{"mu", 0, o.mu_dtype}, {"nu"}},
       .counts = true,
       .step = [=](int32_t count) { return RuleStep{rules::Adam{adam_step(o, count)}}; },
       .fuses = o});
}

TransformationPtr scale_by_lion(double b1, double b2, DType mu_dtype) {
  check_rate(b1, "scale_by_lion: b1");
  check_rate(b2, "scale_by_lion: b2");
  const ScaleByLion o{b1, b2, mu_dtype};
  return elementwise({.slots = {{"mu", 0, mu_dtype}},
                      .counts = true,
                      .step = [=](int32_t) { return RuleStep{rules::Lion{lion_step(o)}}; },
                      .fuses = o});
}

TransformationPtr trace(double decay, bool nesterov, DType accumulator_dtype) {
  return elementwise(
      {.slots = {{"trace", 0, accumulator_dtype}},
       .step =
           [=](int32_t) {
             return RuleStep{rules::Trace{decay_of(decay, accumulator_dtype), nesterov}};
           },
       .fuses = Fusable::Trace{decay, nesterov}});
}

TransformationPtr add_decayed_weights(double weight_decay, const Mask& mask) {
  const auto decay =
      elementwise({.step = [=](int32_t) { return RuleStep{rules::Decay{f32(weight_decay)}}; },
                   .fuses = Fusable::Decay{weight_decay}});
  return mask.selects ? masked(decay, mask) : decay;
}

TransformationPtr scale_by_learning_rate(ScalarOrSchedule rate, bool flip_sign) {
  const float sign = flip_sign ? -1.0f : 1.0f;
  Elementwise scaled{.counts = std::holds_alternative<Schedule>(rate),
                     .step = [rate, sign](int32_t count) {
                       return RuleStep{.use = {.scale = sign * value_at(rate, count)}};
                     }};
  if (flip_sign) scaled.fuses = Fusable::Rate{rate};
  return elementwise(std::move(scaled));
}

TransformationPtr scale(double step_size) {
  return elementwise({.step = [=](int32_t) { return RuleStep{.use = {.scale = f32(step_size)}}; }});
}

TransformationPtr adam(ScalarOrSchedule learning_rate, const AdamOptions& options) {
  return chain({scale_by_adam(options), scale_by_learning_rate(std::move(learning_rate))});
}

TransformationPtr adamw(ScalarOrSchedule learning_rate, const AdamWOptions& o) {
  return chain({scale_by_adam({o.b1, o.b2, o.eps, o.eps_root, o.nesterov, o.mu_dtype}),
                add_decayed_weights(o.weight_decay, o.mask),
                scale_by_learning_rate(std::move(learning_rate))});
}

TransformationPtr lion(ScalarOrSchedule learning_rate, const LionOptions& o) {
  return chain({scale_by_lion(o.b1, o.b2, o.mu_dtype), add_decayed_weights(o.weight_decay, o.mask),
                scale_by_learning_rate(std::move(learning_rate))});
}

TransformationPtr sgd(ScalarOrSchedule learning_rate, const SgdOptions& o) {
  return chain({o.momentum ? trace(*o.momentum, o.nesterov, o.accumulator_dtype) : identity(),
                scale_by_learning_rate(std::move(learning_rate))});
}

}  // namespace quintet
