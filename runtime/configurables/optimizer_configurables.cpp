#include "runtime/configurables/optimizer_configurables.h"

#include "runtime/configurables/optax_configurables.h"
#include "runtime/gin/registry/registry.h"
#include "runtime/optim/adafactor/adafactor.h"
#include "runtime/optim/multi_optimizer.h"

namespace quintet {

namespace gin {

/// A FactorDim is written as a string: 'ROW', 'COLUMN', 'BATCH', 'NONE'.
template <>
struct Convert<FactorDim> {
  static std::string expected() { return "a factor dimension such as 'ROW'"; }
  static FactorDim from(const Value& value, const Where& where) {
    return factor_dim_from_name(as<std::string>(value, where));
  }
  static Value to(FactorDim dim) {
    constexpr const char* kNames[] = {"NONE", "BATCH", "ROW", "COLUMN", "HEURISTIC_RULE"};
    return kNames[static_cast<size_t>(dim)];
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
using gin::Registry;
using gin::Value;

std::optional<double> optional_number(const Arguments& a, const char* name) {
  return a.get<std::optional<double>>(name);
}

Value make_adafactor(const Arguments& a) {
  AdafactorOptions o;
  o.dtype_momentum = a.get<DType>("dtype_momentum");
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
  r.add_constant("t5x.adafactor.HEURISTIC_RULE", gin::to_value(std::vector{FactorDim::kHeuristic}));
  r.add("t5x.adafactor.HParamMap", {{"rules"}}, [](const Arguments& a) -> Value {
    return gin::to_value(HParamRules{a.get<std::vector<std::pair<std::string, Value>>>("rules")});
  });
}

void add_multi_optimizer(Registry& r) {
  // In Python filter_fn is a function of path and value; here an expression searched in "/" + path.
  r.add("flax.traverse_util.ModelParamTraversal", {{"filter_fn"}}, [](const Arguments& a) -> Value {
    return gin::to_value(
        ParamGroup{matching(a.get<std::string>("filter_fn")), a.where("filter_fn").text});
  });
  r.add(
      "t5x.optimizers.MultiOptimizer", {{"traversals_and_optimizers"}},
      [](const Arguments& a) -> Value {
        return gin::to_value(multi_optimizer(
            a.get<std::vector<std::pair<ParamGroup, OptimizerPtr>>>("traversals_and_optimizers")));
      });
}

}  // namespace

void register_optim(Registry& registry) {
  add_adafactor(registry);
  register_optax(registry);
  register_schedules(registry);
  add_multi_optimizer(registry);
}

}  // namespace quintet
