#pragma once
// What gin files may name of optimizers and schedules, under T5X's and optax's names.
//
//   register_optim(registry);
//   OPTIMIZER = @adafactor.Adafactor()
//   adafactor.Adafactor.logical_factor_rules = @adafactor.standard_logical_factor_rules()
//   utils.create_learning_rate_scheduler.factors = 'constant * rsqrt_decay'

namespace quintet::gin {
class Registry;
}

namespace quintet {

/// Optimizers evaluate to OptimizerPtr, optax's transformations to TransformationPtr, schedules to
/// Schedule.
void register_optim(gin::Registry& registry);

}  // namespace quintet
