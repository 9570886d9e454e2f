// Schedules under T5X's and optax's names.

#include "runtime/configurables/optax_configurables.h"
#include "runtime/gin/registry/registry.h"
#include "runtime/optim/optax/optax_schedules.h"

namespace quintet {

/// {step: scale} as written.
struct BoundariesAndScales {
  Boundaries items;
};

namespace gin {

template <>
struct Convert<BoundariesAndScales> {
  static std::string expected() { return "None or a dict of int to float"; }
  static BoundariesAndScales from(const Value& value, const Where& where) {
    BoundariesAndScales result;
    if (value.is_none()) return result;
    const Dict* dict = value.get_if<Dict>();
    if (dict == nullptr) conversion_error(where, expected(), value);
    for (const auto& [step, scale] : dict->items)
      result.items.emplace_back(as<int64_t>(step, where),
                                as<double>(scale, where.key(step.repr())));
    return result;
  }
  static Value to(BoundariesAndScales) { return {}; }
};

/// The arguments of warmup_cosine_decay_schedule as a dict.
template <>
struct Convert<WarmupCosineOptions> {
  static std::string expected() { return "a dict of warmup_cosine_decay_schedule's arguments"; }
  static WarmupCosineOptions from(const Value& value, const Where& where) {
    const auto given = as<std::map<std::string, double>>(value, where);
    WarmupCosineOptions o;
    for (const auto& [name, number] : given) {
      const auto whole = static_cast<int64_t>(number);
      if (name == "init_value")
        o.init_value = number;
      else if (name == "peak_value")
        o.peak_value = number;
      else if (name == "end_value")
        o.end_value = number;
      else if (name == "exponent")
        o.exponent = number;
      else if (name == "warmup_steps")
        o.warmup_steps = whole;
      else if (name == "decay_steps")
        o.decay_steps = whole;
      else
        conversion_error(where.key(name), expected(), value);
    }
    return o;
  }
  static Value to(WarmupCosineOptions) { return {}; }
};

}  // namespace gin

namespace {

using gin::Registry;

void add_simple(Registry& r) {
  const LearningRateOptions d;
  r.add_function("t5x.utils.create_learning_rate_scheduler",
                 [](std::string factors, double base_learning_rate, int64_t warmup_steps,
                    double decay_factor, int64_t steps_per_decay, int64_t steps_per_cycle,
                    int64_t step_offset, double min_learning_rate) {
                   return create_learning_rate_scheduler(
                       {factors, base_learning_rate, warmup_steps, decay_factor, steps_per_decay,
                        steps_per_cycle, step_offset, min_learning_rate});
                 },
                 {{"factors", d.factors},
                  {"base_learning_rate", d.base_learning_rate},
                  {"warmup_steps", d.warmup_steps},
                  {"decay_factor", d.decay_factor},
                  {"steps_per_decay", d.steps_per_decay},
                  {"steps_per_cycle", d.steps_per_cycle},
                  {"step_offset", d.step_offset},
                  {"min_learning_rate", d.min_learning_rate}});
  r.add_function("optax.constant_schedule", constant_schedule, {{"value"}});
  r.add_function("optax.linear_schedule", linear_schedule,
                 {{"init_value"}, {"end_value"}, {"transition_steps"}, {"transition_begin", 0}});
  r.add_function("optax.cosine_decay_schedule", cosine_decay_schedule,
                 {{"init_value"}, {"decay_steps"}, {"alpha", 0.0}, {"exponent", 1.0}});
  r.add_function("optax.warmup_cosine_decay_schedule",
                 [](double init_value, double peak_value, int64_t warmup_steps, int64_t decay_steps,
                    double end_value, double exponent) {
                   return warmup_cosine_decay_schedule(
                       {init_value, peak_value, warmup_steps, decay_steps, end_value, exponent});
                 },
                 {{"init_value"},
                  {"peak_value"},
                  {"warmup_steps"},
                  {"decay_steps"},
                  {"end_value", 0.0},
                  {"exponent", 1.0}});
}

void add_decays(Registry& r) {
  r.add_function(
      "optax.polynomial_schedule",
      [](double init_value, double end_value, double power, int64_t transition_steps,
         int64_t transition_begin) {
        return polynomial_schedule(
            {init_value, end_value, power, transition_steps, transition_begin});
      },
      {{"init_value"}, {"end_value"}, {"power"}, {"transition_steps"}, {"transition_begin", 0}});
  r.add_function("optax.exponential_decay",
                 [](double init_value, int64_t transition_steps, double decay_rate,
                    int64_t transition_begin, bool staircase, std::optional<double> end_value) {
                   return exponential_decay({init_value, transition_steps, decay_rate,
                                             transition_begin, staircase, end_value});
                 },
                 {{"init_value"},
                  {"transition_steps"},
                  {"decay_rate"},
                  {"transition_begin", 0},
                  {"staircase", false},
                  {"end_value", nullptr}});
  r.add_function(
      "optax.warmup_exponential_decay_schedule",
      [](double init_value, double peak_value, int64_t warmup_steps, int64_t transition_steps,
         double decay_rate, int64_t transition_begin, bool staircase,
         std::optional<double> end_value) {
        return warmup_exponential_decay_schedule(
            {init_value,
             peak_value,
             warmup_steps,
             {peak_value, transition_steps, decay_rate, transition_begin, staircase, end_value}});
      },
      {{"init_value"},
       {"peak_value"},
       {"warmup_steps"},
       {"transition_steps"},
       {"decay_rate"},
       {"transition_begin", 0},
       {"staircase", false},
       {"end_value", nullptr}});
  r.add_function("optax.schedules.warmup_constant_schedule",
                 [](double init_value, double peak_value, int64_t warmup_steps) {
                   return linear_schedule(init_value, peak_value, warmup_steps);
                 },
                 {{"init_value"}, {"peak_value"}, {"warmup_steps"}});
}

void add_piecewise(Registry& r) {
  const OneCycleOptions d;
  r.add_function("optax.piecewise_constant_schedule",
                 [](double init_value, const BoundariesAndScales& boundaries) {
                   return piecewise_constant_schedule(init_value, boundaries.items);
                 },
                 {{"init_value"}, {"boundaries_and_scales", nullptr}});
  r.add_function(
      "optax.piecewise_interpolate_schedule",
      [](const std::string& type, double init_value, const BoundariesAndScales& boundaries) {
        return piecewise_interpolate_schedule(type, init_value, boundaries.items);
      },
      {{"interpolate_type"}, {"init_value"}, {"boundaries_and_scales", nullptr}});
  r.add_function("optax.linear_onecycle_schedule",
                 [](int64_t transition_steps, double peak_value, double pct_start, double pct_final,
                    double div_factor, double final_div_factor) {
                   return linear_onecycle_schedule({transition_steps, peak_value, pct_start,
                                                    pct_final, div_factor, final_div_factor});
                 },
                 {{"transition_steps"},
                  {"peak_value"},
                  {"pct_start", d.pct_start},
                  {"pct_final", d.pct_final},
                  {"div_factor", d.div_factor},
                  {"final_div_factor", d.final_div_factor}});
  r.add_function("optax.cosine_onecycle_schedule",
                 [](int64_t transition_steps, double peak_value, double pct_start,
                    double div_factor, double final_div_factor) {
                   return cosine_onecycle_schedule({.transition_steps = transition_steps,
                                                    .peak_value = peak_value,
                                                    .pct_start = pct_start,
                                                    .div_factor = div_factor,
                                                    .final_div_factor = final_div_factor});
                 },
                 {{"transition_steps"},
                  {"peak_value"},
                  {"pct_start", d.pct_start},
                  {"div_factor", d.div_factor},
                  {"final_div_factor", d.final_div_factor}});
  r.add_function("optax.join_schedules", join_schedules, {{"schedules"}, {"boundaries"}});
  r.add_function("optax.sgdr_schedule", sgdr_schedule, {{"cosine_kwargs"}});
}

}  // namespace

void register_schedules(Registry& registry) {
  add_simple(registry);
  add_decays(registry);
  add_piecewise(registry);
}

}  // namespace quintet
