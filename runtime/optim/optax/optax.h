#pragma once
// Optax's gradient transformations and the optimizers made of them, as t5x.optimizers wraps them. More of them:
// moments.h, wrappers.h; what they are made of: elementwise.h, transformation.h.
// State has optax's index and field paths ("0/mu/<param>", "2/count"); update rules follow optax
// 0.2.3.
//
//   OptimizerPtr optimizer =
//       optax_optimizer(adamw(warmup_cosine_decay_schedule({...}), {.weight_decay = 0.01}));
//   OptimizerPtr clipped = optax_optimizer(chain({clip_by_global_norm(1.0), adamw(1e-3)}));
//
// Chains of clips before adam, adamw, lion or sgd run as one fused pass over memory.

#include <functional>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "runtime/optim/optimizer.h"
#include "runtime/optim/schedules.h"

namespace quintet {

/// A number, or a schedule of the transformation's own count of updates.
using ScalarOrSchedule = std::variant<double, Schedule>;

/// One elementary transformation of optax, or a chain of them. Immutable.
class Transformation;
using TransformationPtr = std::shared_ptr<const Transformation>;

TransformationPtr chain(std::vector<TransformationPtr> transformations);
TransformationPtr identity();

/// Which parameters a transformation is for, by the path with a slash before it; empty: all.
struct Mask {
  std::function<bool(const std::string& path)> selects{};
  std::string where{};  // the binding, for the error if it selects none
};
/// The parameters whose path an expression is found in.
Mask mask_of(const std::string& expression);

TransformationPtr clip(double max_delta);
TransformationPtr clip_by_global_norm(double max_norm);

struct AdamOptions {
  double b1 = 0.9, b2 = 0.999, eps = 1e-8, eps_root = 0.0;
  bool nesterov = false;
  DType mu_dtype = DType::f32;  // or bfloat16
};
struct AdamWOptions {
  double b1 = 0.9, b2 = 0.999, eps = 1e-8, eps_root = 0.0;
  double weight_decay = 1e-4;
  bool nesterov = false;
  DType mu_dtype = DType::f32;
  Mask mask{};  // of the decay
};
struct LionOptions {
  double b1 = 0.9, b2 = 0.99, weight_decay = 1e-3;
  DType mu_dtype = DType::f32;
  Mask mask{};
};
struct SgdOptions {
  std::optional<double> momentum{};
  bool nesterov = false;
  DType accumulator_dtype = DType::f32;
};
TransformationPtr adam(ScalarOrSchedule learning_rate, const AdamOptions& options = {});
/// Decays every parameter that the mask selects, norms too, by learning rate * weight_decay.
TransformationPtr adamw(ScalarOrSchedule learning_rate, const AdamWOptions& options = {});
TransformationPtr lion(ScalarOrSchedule learning_rate, const LionOptions& options = {});
TransformationPtr sgd(ScalarOrSchedule learning_rate, const SgdOptions& options = {});

TransformationPtr scale_by_adam(const AdamOptions& options = {});
TransformationPtr scale_by_lion(double b1 = 0.9, double b2 = 0.99, DType mu_dtype = DType::f32);
TransformationPtr trace(double decay, bool nesterov = false, DType accumulator_dtype = DType::f32);
TransformationPtr add_decayed_weights(double weight_decay, const Mask& mask = {});
/// Multiplies by -learning_rate; by learning_rate without flip_sign.
TransformationPtr scale_by_learning_rate(ScalarOrSchedule learning_rate, bool flip_sign = true);
TransformationPtr scale(double step_size);

/// t5x.optimizers.OptaxWrapper.
OptimizerPtr optax_optimizer(TransformationPtr transformation);

}  // namespace quintet
