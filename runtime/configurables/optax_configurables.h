#pragma once
// What gin files may name of optax, and how values become its arguments.
//
//   register_optax(registry);

#include "runtime/gin/registry/convert.h"
#include "runtime/optim/hparam_map.h"
#include "runtime/optim/multi_optimizer.h"
#include "runtime/optim/optax/amos.h"

namespace quintet::gin {
class Registry;
}

namespace quintet {

/// adafactor.HParamMap as written: what its values are, the parameter it is bound to decides.
struct HParamRules {
  std::vector<std::pair<std::string, gin::Value>> rules;
};

void register_optax(gin::Registry& registry);
/// jestimator.amos_helper's functions of a parameter's path and shape.
void register_amos_helper(gin::Registry& registry);
/// optax.inject_hyperparams.
void register_inject_hyperparams(gin::Registry& registry);
/// Schedules, T5X's too.
void register_schedules(gin::Registry& registry);

namespace gin {

template <>
struct Convert<ScalarOrSchedule> {
  static std::string expected() { return "a number or a schedule"; }
  static ScalarOrSchedule from(const Value& value, const Where& where);
  static Value to(ScalarOrSchedule) { return {}; }
};

/// What amos_helper.params_fn_from_assign_map makes: numbers for eta_fn, tuples for shape_fn, of which None is absent.
template <>
struct Convert<ParamNumber> {
  static std::string expected() { return "@amos_helper.params_fn_from_assign_map()"; }
  static ParamNumber from(const Value& value, const Where& where);
  static Value to(ParamNumber) { return {}; }
};
template <>
struct Convert<ParamShape> {
  static std::string expected() { return "None or @amos_helper.params_fn_from_assign_map()"; }
  static ParamShape from(const Value& value, const Where& where);
  static Value to(ParamShape) { return {}; }
};

/// Of moments: None is float32.
template <>
struct Convert<DType> {
  static std::string expected() { return "None, 'float32' or 'bfloat16'"; }
  static DType from(const Value& value, const Where& where);
  static Value to(DType) { return {}; }
};

/// None or True: all parameters; a regular expression that is searched in "/" + path; or an adafactor.HParamMap.
template <>
struct Convert<Mask> {
  static std::string expected() {
    return "None, bool, a regular expression or adafactor.HParamMap";
  }
  static Mask from(const Value& value, const Where& where);
  static Value to(Mask) { return {}; }
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

}  // namespace gin
}  // namespace quintet
