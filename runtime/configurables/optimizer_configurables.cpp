#include "runtime/configurables/optimizer_configurables.h"

#include "runtime/gin/registry/registry.h"
#include "runtime/optim/adafactor/adafactor.h"
#include "runtime/optim/checked_rate.h"
#include "runtime/optim/multi_optimizer.h"
#include "runtime/optim/optax/optax.h"
#include "runtime/optim/optax/transformation.h"
#include "runtime/optim/schedules.h"

namespace quintet {

/// adafactor.HParamMap as written: what its values are, the parameter it is bound to decides.
struct HParamRules {
  std::vector<std::pair<std::string, gin::Value>> rules;
};

namespace gin {

/// A FactorDim is written as a string: 'ROW', 'COLUMN', 'BATCH', 'NONE'.
template <>
struct Convert<FactorDim> {
  static std::string expected() { return "a factor dimension such as 'ROW'"; }
  static FactorDim from(const Value& value, const Where& where) {
    return factor_dim_from_name(as<std::string>(value, where));
  }
  static Value to(FactorDim dim) {
    constexpr const char* kNames[] = {"NONE", "BATCH", "ROW", "COLUMN"};
    return kNames[static_cast<size_t>(dim)];
  }
};

template <typename T>
struct Convert<HParamMap<T>> {
  static std::string expected() { return "adafactor.HParamMap"; }
  static HParamMap<T> from(const Value& value, const Where& where) {
    const auto rules = value.object_as<HParamRules>();
    if (rules == nullptr) conversion_error(where, expected(), value);
    std::vector<std::pair<std::string, T>> typed;
    for (const auto& [expression, item] : rules->rules)
      typed.emplace_back(expression, as<T>(item, where.key(expression)));
    return HParamMap<T>(typed);
  }
};

/// A number, or a schedule.
template <>
struct Convert<ScalarOrSchedule> {
  static std::string expected() { return "a number or a schedule"; }
  static ScalarOrSchedule from(const Value& value, const Where& where) {
    if (value.get_if<double>() != nullptr || value.get_if<int64_t>() != nullptr)
      return checked_rate(as<double>(value, where), where.text);
    const auto schedule = as<Schedule>(value, where);
    if (schedule == nullptr) conversion_error(where, expected(), value);
    return schedule;
  }
};

template <>
struct Convert<std::variant<bool, HParamMap<bool>>> {
  static std::string expected() { return "bool or adafactor.HParamMap"; }
  static std::variant<bool, HParamMap<bool>> from(const Value& value, const Where& where) {
    if (value.object_as<HParamRules>() != nullptr) return as<HParamMap<bool>>(value, where);
    return as<bool>(value, where);
  }
};

}  // namespace gin

namespace {

using gin::Arguments;
using gin::Param;
using gin::Registry;
using gin::Value;

/// Arguments of the originals that have one supported value: their default or float32.
void expect_default(const Arguments& a, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const Value value = a.has(name) ? a.value(name) : Value();
    if (value.is_none()) continue;
    const std::string* text = value.get_if<std::string>();
    QT_CHECK(text != nullptr && *text == "float32",
             "{}: only None (or 'float32' for a dtype) is supported here, found {}",
             a.where(name).text, value.describe());
  }
}

std::optional<double> optional_number(const Arguments& a, const char* name) {
  return a.get<std::optional<double>>(name);
}

Value make_adafactor(const Arguments& a) {
  expect_default(a, {"dtype_momentum"});
  AdafactorOptions o;
  o.factored = a.get<bool>("factored");
  if (a.has("multiply_by_parameter_scale"))
    o.multiply_by_parameter_scale =
        a.get<std::variant<bool, HParamMap<bool>>>("multiply_by_parameter_scale");
  o.beta1 = optional_number(a, "beta1");
  o.decay_rate = a.get<double>("decay_rate");
  o.step_offset = a.get<int64_t>("step_offset");
  o.clipping_threshold = optional_number(a, "clipping_threshold");
  o.weight_decay_rate = optional_number(a, "weight_decay_rate");
  o.min_dim_size_to_factor = a.get<int64_t>("min_dim_size_to_factor");
  o.epsilon1 = a.get<double>("epsilon1");
  o.epsilon2 = a.get<double>("epsilon2");
  if (a.has("factor_map") && !a.value("factor_map").is_none())
    o.factor_map = a.get<HParamMap<std::vector<FactorDim>>>("factor_map");
  o.logical_factor_rules = a.get<std::optional<FactorRules>>("logical_factor_rules");
  o.weight_decay_rate_lr_exponent = optional_number(a, "weight_decay_rate_lr_exponent");
  o.global_norm_clip_threshold = optional_number(a, "global_norm_clip_threshold");
  o.max_parameter_scale = optional_number(a, "max_parameter_scale");
  o.skip_nan_updates = a.get<std::optional<bool>>("skip_nan_updates").value_or(false);
  return gin::to_value(adafactor(o));
}

void add_adafactor(Registry& r) {
  // learning_rate: the trainer gives one at every step, as T5X's does.
  r.add("t5x.adafactor.Adafactor",
        {{"learning_rate", nullptr},
         {"factored", true},
         {"multiply_by_parameter_scale", true},
         {"beta1", nullptr},
         {"decay_rate", 0.8},
         {"step_offset", 0},
         {"clipping_threshold", 1.0},
         {"weight_decay_rate", nullptr},
         {"min_dim_size_to_factor", 128},
         {"epsilon1", 1e-30},
         {"epsilon2", 1e-3},
         {"dtype_momentum", "float32"},
         {"factor_map", nullptr},
         {"logical_factor_rules", nullptr},
         {"weight_decay_rate_lr_exponent", nullptr},
         {"global_norm_clip_threshold", nullptr},
         {"max_parameter_scale", nullptr},
         {"skip_nan_updates", false}},
        make_adafactor);
  r.add_function("t5x.adafactor.standard_logical_factor_rules", standard_logical_factor_rules, {});
  r.add_function("t5x.contrib.moe.adafactor_utils.logical_factor_rules", moe_logical_factor_rules,
                 {});
  r.add("t5x.adafactor.HParamMap", {{"rules"}}, [](const Arguments& a) -> Value {
    return gin::to_value(HParamRules{a.get<std::vector<std::pair<std::string, Value>>>("rules")});
  });
}

using MakeTransformation = TransformationPtr (*)(const Arguments&);

TransformationPtr make_adam(const Arguments& a) {
  expect_default(a, {"mu_dtype"});
  return adam(a.get<ScalarOrSchedule>("learning_rate"),
              {a.get<double>("b1"), a.get<double>("b2"), a.get<double>("eps"),
               a.get<double>("eps_root"), a.get<bool>("nesterov")});
}

TransformationPtr make_adamw(const Arguments& a) {
  expect_default(a, {"mu_dtype", "mask"});
  return adamw(a.get<ScalarOrSchedule>("learning_rate"),
               {a.get<double>("b1"), a.get<double>("b2"), a.get<double>("eps"),
                a.get<double>("eps_root"), a.get<double>("weight_decay"), a.get<bool>("nesterov")});
}

TransformationPtr make_lion(const Arguments& a) {
  expect_default(a, {"mu_dtype", "mask"});
  return lion(a.get<ScalarOrSchedule>("learning_rate"),
              {a.get<double>("b1"), a.get<double>("b2"), a.get<double>("weight_decay")});
}

TransformationPtr make_sgd(const Arguments& a) {
  expect_default(a, {"accumulator_dtype"});
  return sgd(a.get<ScalarOrSchedule>("learning_rate"),
             {optional_number(a, "momentum"), a.get<bool>("nesterov")});
}

/// optax.NAME, a transformation, and t5x.optimizers.NAME, the same wrapped as an optimizer.
void add_both(Registry& r, const std::string& name, const std::vector<Param>& params,
              MakeTransformation make) {
  r.add("optax." + name, params,
        [make](const Arguments& a) -> Value { return gin::to_value(make(a)); });
  r.add("t5x.optimizers." + name, params,
        [make](const Arguments& a) -> Value { return gin::to_value(optax_optimizer(make(a))); });
}

void add_optax(Registry& r) {
  const std::vector<Param> adam_params = {
      {"learning_rate"}, {"b1", 0.9},           {"b2", 0.999},      {"eps", 1e-8},
      {"eps_root", 0.0}, {"mu_dtype", nullptr}, {"nesterov", false}};
  std::vector<Param> adamw_params = adam_params;
  adamw_params.insert(adamw_params.end() - 1, {{"weight_decay", 1e-4}, {"mask", nullptr}});
  add_both(r, "adam", adam_params, make_adam);
  add_both(r, "adamw", adamw_params, make_adamw);
  add_both(r, "lion",
           {{"learning_rate"},
            {"b1", 0.9},
            {"b2", 0.99},
            {"mu_dtype", nullptr},
            {"weight_decay", 1e-3},
            {"mask", nullptr}},
           make_lion);
  add_both(r, "sgd",
           {{"learning_rate"},
            {"momentum", nullptr},
            {"nesterov", false},
            {"accumulator_dtype", nullptr}},
           make_sgd);
  add_both(r, "chain", {{"transformations"}}, [](const Arguments& a) {
    return chain(a.get<std::vector<TransformationPtr>>("transformations"));
  });
  r.add_function("optax.clip", clip, {{"max_delta"}});
  r.add_function("optax.clip_by_global_norm", clip_by_global_norm, {{"max_norm"}});
  r.add_function("optax.add_decayed_weights", add_decayed_weights, {{"weight_decay", 0.0}});
  r.add_function("optax.scale", scale, {{"step_size"}});
  r.add_function("optax.scale_by_lion", scale_by_lion, {{"b1", 0.9}, {"b2", 0.99}});
  r.add_function("optax.trace", trace, {{"decay"}, {"nesterov", false}});
  r.add_function("optax.scale_by_learning_rate", scale_by_learning_rate, {{"learning_rate"}});
  r.add_function(
      "optax.scale_by_adam",
      [](double b1, double b2, double eps, double eps_root, bool nesterov) {
        return scale_by_adam({b1, b2, eps, eps_root, nesterov});
      },
      {{"b1", 0.9}, {"b2", 0.999}, {"eps", 1e-8}, {"eps_root", 0.0}, {"nesterov", false}});
}

void add_schedules(Registry& r) {
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

void add_multi_optimizer(Registry& r) {
  // In Python filter_fn is a function of path and value; here an expression searched in "/" + path.
  r.add_function("flax.traverse_util.ModelParamTraversal", matching, {{"filter_fn"}});
  r.add("t5x.optimizers.MultiOptimizer", {{"traversals_and_optimizers"}},
        [](const Arguments& a) -> Value {
          return gin::to_value(multi_optimizer(
              a.get<std::vector<std::pair<Traversal, OptimizerPtr>>>("traversals_and_optimizers")));
        });
}

}  // namespace

void register_optim(Registry& registry) {
  add_adafactor(registry);
  add_optax(registry);
  add_schedules(registry);
  add_multi_optimizer(registry);
}

}  // namespace quintet
