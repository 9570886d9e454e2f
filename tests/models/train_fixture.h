#pragma once
// Reads the training set-up of a fixtures train/<case>/meta.json.

#include "runtime/optim/adafactor/adafactor.h"
#include "runtime/optim/multi_optimizer.h"
#include "runtime/optim/optax/optax.h"
#include "runtime/optim/schedules.h"
#include "runtime/trainer/trainer.h"
#include "tests/models/model_fixture.h"

namespace quintet::testing {

inline Schedule read_schedule(const Json& json) {
  return create_learning_rate_scheduler(
      {.factors = json["factors"].as_string(),
       .base_learning_rate = json["base_learning_rate"].as_double(),
       .warmup_steps = json["warmup_steps"].as_int(),
       .decay_factor = json["decay_factor"].as_double(),
       .steps_per_decay = json["steps_per_decay"].as_int(),
       .steps_per_cycle = json["steps_per_cycle"].as_int(),
       .step_offset = json["step_offset"].as_int(),
       .min_learning_rate = json["min_learning_rate"].as_double()});
}

inline OptimizerPtr read_adafactor(const Json& json) {
  AdafactorOptions options;
  for (const auto& [name, value] : json.members()) {
    if (name == "decay_rate")
      options.decay_rate = value.as_double();
    else if (name == "step_offset")
      options.step_offset = value.as_int();
    else if (name == "beta1")
      options.beta1 = value.as_double();
    else if (name == "factored")
      options.factored = value.as_bool();
    else if (name == "weight_decay_rate")
      options.weight_decay_rate = value.as_double();
    else if (name == "min_dim_size_to_factor")
      options.min_dim_size_to_factor = value.as_int();
    else if (name == "logical_factor_rules")
      options.logical_factor_rules = value.as_string() == "standard_logical_factor_rules"
                                         ? standard_logical_factor_rules()
                                         : moe_logical_factor_rules();
    else
      ADD_FAILURE() << "unknown Adafactor argument " << name;
  }
  return adafactor(options);
}

/// The "chain" form: transformations by name, in order.
inline OptimizerPtr read_chain(const Json& json, const Schedule& schedule) {
  std::vector<TransformationPtr> parts;
  for (const auto& [name, value] : json.members()) {
    if (name == "clip_by_global_norm") {
      parts.push_back(clip_by_global_norm(value.as_double()));
    } else if (name == "adamw") {
      parts.push_back(adamw(schedule, {.b1 = value["b1"].as_double(),
                                       .b2 = value["b2"].as_double(),
                                       .eps = value["eps"].as_double(),
                                       .weight_decay = value["weight_decay"].as_double()}));
    } else {
      ADD_FAILURE() << "unknown transformation " << name;
    }
  }
  return optax_optimizer(chain(std::move(parts)));
}

inline OptimizerPtr read_optimizer(const Json& json, const Schedule& schedule) {
  if (json.has("adafactor")) return read_adafactor(json["adafactor"]);
  if (json.has("chain")) return read_chain(json["chain"], schedule);
  std::vector<std::pair<ParamGroup, OptimizerPtr>> groups;
  for (const Json& group : json["multi_optimizer"].items())
    groups.emplace_back(matching(group["match"].as_string()), read_adafactor(group["adafactor"]));
  return multi_optimizer(std::move(groups));
}

}  // namespace quintet::testing
