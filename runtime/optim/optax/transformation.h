#pragma once
// The elementary transformations behind optim/optax/optax.h, for the optimizer that runs them.

#include <variant>

#include "runtime/optim/optax/optax.h"

namespace quintet {

struct Clip {
  double max_delta;
};
struct ClipByGlobalNorm {
  double max_norm;
};
struct ScaleByAdam {
  AdamOptions options;
};
struct ScaleByLion {
  double b1, b2;
};
struct Trace {
  double decay;
  bool nesterov;
};
struct AddDecayedWeights {
  double weight_decay;
};
struct ScaleByLearningRate {
  ScalarOrSchedule rate;
};
struct Scale {
  double step_size;
};
struct Identity {};
using Elementary = std::variant<Identity, Clip, ClipByGlobalNorm, ScaleByAdam, ScaleByLion, Trace,
                                AddDecayedWeights, ScaleByLearningRate, Scale>;

class Transformation {
 public:
  explicit Transformation(Elementary elementary) : content_(std::move(elementary)) {}
  explicit Transformation(std::vector<TransformationPtr> chain) : content_(std::move(chain)) {}

  /// An elementary transformation and where optax puts its state: "1/0/".
  struct Part {
    Elementary elementary;
    std::string state_prefix;
  };
  /// The elementary transformations in the order they run.
  void flatten(const std::string& prefix, std::vector<Part>& parts) const;

 private:
  std::variant<Elementary, std::vector<TransformationPtr>> content_;
};

}  // namespace quintet
