#pragma once
// optax.inject_hyperparams: numbers of a transformation are part of its state. Each update takes them from there, so that
// a checkpoint's numbers win over the configuration's; schedules write theirs before.
//
//   inject_hyperparams({.hyperparams = {{"learning_rate", schedule}, {"b1", 0.9}},
//                       .make = [](std::span<const double> x) { return adam(x[0], {.b1 = x[1]}); }});

#include <span>

#include "runtime/optim/optax/optax.h"

namespace quintet {

/// A parameter of the transformation: a number, or a schedule of the count of updates.
struct Hyperparam {
  std::string name;
  ScalarOrSchedule value;
  bool is_integer = false;  // int32 in the state; else float32
};
struct InjectOptions {
  std::vector<Hyperparam> hyperparams;
  /// The transformation with these numbers, in the order of hyperparams.
  std::function<TransformationPtr(std::span<const double>)> make;
  std::string where = "optax.inject_hyperparams";  // for messages
};
/// State: "count", "hyperparams/<name>", "hyperparams_states/<name>/count" of schedules, "inner_state/...".
TransformationPtr inject_hyperparams(InjectOptions options);

}  // namespace quintet
