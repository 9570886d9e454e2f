#pragma once
// Elementary transformations of optax, and the optimizers that chains of them are, beside those of optax.h. Members
// are optax's arguments with their defaults. To add one: docs/add-an-optimizer.md.
//
//   OptimizerPtr optimizer = optax_optimizer(rmsprop({.learning_rate = 1e-3, .momentum = 0.9}));

#include "runtime/optim/optax/elementwise.h"
#include "runtime/optim/optax/norms.h"
#include "runtime/optim/optax/wrappers.h"

namespace quintet {

/// The options of a transformation, and the rate by which its optimizer multiplies what it makes.
template <typename Options>
struct WithRate : Options {
  ScalarOrSchedule learning_rate = 0.0;
};

struct BeliefOptions {
  double b1 = 0.9, b2 = 0.999, eps = 1e-16, eps_root = 1e-16;
};
inline TransformationPtr scale_by_belief(const BeliefOptions& o) {
  check_rate(o.b1, "scale_by_belief: b1");
  check_rate(o.b2, "scale_by_belief: b2");
  const AdamOptions numbers{o.b1, o.b2, o.eps, o.eps_root};
  return elementwise({.slots = {{"mu"}, {"nu"}}, .counts = true, .step = [=](int32_t count) {
                        return RuleStep{rules::Belief{adam_step(numbers, count)}};
                      }});
}
inline TransformationPtr adabelief(const WithRate<BeliefOptions>& o) {
  return chain({scale_by_belief(o), scale_by_learning_rate(o.learning_rate)});
}

struct RssOptions {
  double initial_accumulator_value = 0.1, eps = 1e-7;
};
inline TransformationPtr scale_by_rss(const RssOptions& o) {
  QT_CHECK(o.initial_accumulator_value >= 0,
           "scale_by_rss: initial_accumulator_value must be 0 or more, got {}",
           o.initial_accumulator_value);
  return elementwise({.slots = {{"sum_of_squares", o.initial_accumulator_value}},
                      .step = [=](int32_t) { return RuleStep{rules::RootOfSum{f32(o.eps)}}; }});
}
inline TransformationPtr adagrad(const WithRate<RssOptions>& o) {
  return chain({scale_by_rss(o), scale_by_learning_rate(o.learning_rate)});
}

struct RmsOptions {
  double decay = 0.9, eps = 1e-8, initial_scale = 0.0;
};
inline TransformationPtr scale_by_rms(const RmsOptions& o) {
  check_rate(o.decay, "scale_by_rms: decay");
  const rules::Rms rule{f32(o.decay), f32(1 - o.decay), f32(o.eps)};
  return elementwise(
      {.slots = {{"nu", o.initial_scale}}, .step = [=](int32_t) { return RuleStep{rule}; }});
}
inline TransformationPtr scale_by_stddev(const RmsOptions& o) {
  check_rate(o.decay, "scale_by_stddev: decay");
  const rules::StandardDeviation rule{f32(o.decay), f32(1 - o.decay), f32(o.eps)};
  return elementwise({.slots = {{"mu"}, {"nu", o.initial_scale}},
                      .step = [=](int32_t) { return RuleStep{rule}; }});
}
struct RmspropOptions : WithRate<RmsOptions> {
  bool centered = false;
  std::optional<double> momentum{};
  bool nesterov = false;
};
inline TransformationPtr rmsprop(const RmspropOptions& o) {
  return chain({o.centered ? scale_by_stddev(o) : scale_by_rms(o),
                scale_by_learning_rate(o.learning_rate),
                o.momentum ? trace(*o.momentum, o.nesterov) : identity()});
}

struct YogiOptions {
  double b1 = 0.9, b2 = 0.999, eps = 1e-3;
};
struct ScaleByYogiOptions : YogiOptions {
  double eps_root = 0.0, initial_accumulator_value = 1e-6;
};
inline TransformationPtr scale_by_yogi(const ScaleByYogiOptions& o) {
  check_rate(o.b1, "scale_by_yogi: b1");
  check_rate(o.b2, "scale_by_yogi: b2");
  const AdamOptions numbers{o.b1, o.b2, o.eps, o.eps_root};
  return elementwise(
      {.slots = {{"mu", o.initial_accumulator_value}, {"nu", o.initial_accumulator_value}},
       .counts = true,
       .step = [=](int32_t count) { return RuleStep{rules::Yogi{adam_step(numbers, count)}}; }});
}
inline TransformationPtr yogi(const WithRate<YogiOptions>& o) {
  return chain({scale_by_yogi({o}), scale_by_learning_rate(o.learning_rate)});
}

struct RadamOptions {
  double b1 = 0.9, b2 = 0.999, eps = 1e-8, eps_root = 0.0, threshold = 5.0;
  bool nesterov = false;
};
/// In float32 and in optax's order: at first the difference of two numbers near 2 / (1 - b2) decides.
inline float radam_rectifier(const RadamOptions& o, int32_t count) {
  const double infinity = 2.0 / (1 - o.b2) - 1;
  const auto t = static_cast<float>(count + 1);
  const float power = std::pow(f32(o.b2), t);
  const float length = f32(infinity) - 2 * t * power / (1 - power);
  if (!(length >= f32(o.threshold))) return 0;
  return std::sqrt((length - 4) * (length - 2) * f32(infinity) /
                   (f32((infinity - 4) * (infinity - 2)) * length));
}
inline TransformationPtr scale_by_radam(const RadamOptions& o) {
  check_rate(o.b1, "scale_by_radam: b1");
  check_rate(o.b2, "scale_by_radam: b2");
  const AdamOptions numbers{o.b1, o.b2, o.eps, o.eps_root, o.nesterov};
  return elementwise({.slots = {{"mu"}, {"nu"}}, .counts = true, .step = [=](int32_t count) {
                        return RuleStep{rules::RectifiedAdam{adam_step(numbers, count),
                                                             radam_rectifier(o, count)}};
                      }});
}
inline TransformationPtr radam(const WithRate<RadamOptions>& o) {
  return chain({scale_by_radam(o), scale_by_learning_rate(o.learning_rate)});
}

struct AdamaxOptions {
  double b1 = 0.9, b2 = 0.999, eps = 1e-8;
};
inline TransformationPtr scale_by_adamax(const AdamaxOptions& o) {
  check_rate(o.b1, "scale_by_adamax: b1");
  check_rate(o.b2, "scale_by_adamax: b2");
  const AdamOptions numbers{o.b1, o.b2, o.eps};
  return elementwise({.slots = {{"mu"}, {"nu"}}, .counts = true, .step = [=](int32_t count) {
                        return RuleStep{rules::Adamax{adam_step(numbers, count)}};
                      }});
}
inline TransformationPtr adamax(const WithRate<AdamaxOptions>& o) {
  return chain({scale_by_adamax(o), scale_by_learning_rate(o.learning_rate)});
}

struct EmaOptions {
  double decay = 0.0;
  bool debias = true;
  DType accumulator_dtype = DType::f32;
};
inline TransformationPtr ema(const EmaOptions& o) {
  check_rate(o.decay, "ema: decay");
  return elementwise(
      {.slots = {{"ema", 0, o.accumulator_dtype}}, .counts = true, .step = [=](int32_t count) {
         return RuleStep{rules::Ema{decay_of(o.decay, o.accumulator_dtype), f32(1 - o.decay),
                                    o.debias ? bias_correction(o.decay, count + 1) : 1.0f}};
       }});
}

struct LambOptions : AdamOptions {
  LambOptions() { eps = 1e-6; }
  double weight_decay = 0.0;
  Mask mask{};
};
inline TransformationPtr lamb(const WithRate<LambOptions>& o) {
  return chain({scale_by_adam(o), add_decayed_weights(o.weight_decay, o.mask),
                scale_by_trust_ratio(), scale_by_learning_rate(o.learning_rate)});
}

struct LarsOptions {
  ScalarOrSchedule learning_rate = 0.0;
  double weight_decay = 0.0;
  Mask weight_decay_mask{};
  double trust_coefficient = 0.001, eps = 0.0;
  Mask trust_ratio_mask{};
  double momentum = 0.9;
  bool nesterov = false;
};
inline TransformationPtr lars(const LarsOptions& o) {
  return chain(
      {add_decayed_weights(o.weight_decay, o.weight_decay_mask),
       masked(scale_by_trust_ratio({.trust_coefficient = o.trust_coefficient, .eps = o.eps}),
              o.trust_ratio_mask),
       scale_by_learning_rate(o.learning_rate), trace(o.momentum, o.nesterov)});
}

struct FromageOptions {
  double learning_rate = 0.0, min_norm = 1e-6;
};
inline TransformationPtr fromage(const FromageOptions& o) {
  const float shrink = 1.0f / std::sqrt(1.0f + f32(o.learning_rate * o.learning_rate));
  return chain({scale_by_trust_ratio({.min_norm = o.min_norm}),
                scale_by_learning_rate(static_cast<double>(f32(o.learning_rate) * shrink)),
                add_decayed_weights(static_cast<double>(shrink - 1.0f))});
}

}  // namespace quintet
