#pragma once
// Optax's transformations around other ones. State has optax's paths, such as "inner_state/0/mu/<param>".
//
//   masked(add_decayed_weights(0.1), mask_of("kernel"));
//   multi_transform({{"body", adamw(1e-3)}, {"frozen", set_to_zero()}}, labels);

#include "runtime/optim/optax/optax.h"

namespace quintet {

/// `inner` for the parameters of the mask; the gradients of the others go on as they are. A usage error when the state is
/// made if the mask selects no parameter.
TransformationPtr masked(TransformationPtr inner, const Mask& mask);

/// A label for each parameter by its path with a slash before it: the first expression that is found in it.
struct Labels {
  std::vector<std::pair<std::string, std::string>> rules;  // expression, label
  std::string where{};                                     // the binding, for messages
};
/// To each parameter the transformation of its label. Usage errors: a parameter without a label, a label without a
/// transformation, an expression or a transformation for no parameter.
TransformationPtr multi_transform(std::vector<std::pair<std::string, TransformationPtr>> transforms,
                                  Labels labels);

/// Gradients become 0: what comes to them is frozen.
TransformationPtr set_to_zero();

/// optax.MultiSteps: `every_k` gradients make an update of `inner`, their mean or else their sum.
struct MultiStepsOptions {
  std::variant<int64_t, Schedule> every_k = int64_t{1};  // the schedule counts updates
  bool use_grad_mean = true;
};
TransformationPtr multi_steps(TransformationPtr inner, const MultiStepsOptions& options);

/// Updates with a gradient that is not finite are left out, unless more than so many come one after the other.
TransformationPtr apply_if_finite(TransformationPtr inner, int64_t max_consecutive_errors);

/// A NaN in a gradient becomes 0; state: whether there was one, by parameter.
TransformationPtr zero_nans();

}  // namespace quintet
