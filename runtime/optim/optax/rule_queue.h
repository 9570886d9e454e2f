#pragma once
// Rules that transformations ask for, to be run over all parameters in one pass: a chain of elementary transformations
// reads gradients and parameters once, on a GPU by a launch for each hundred arrays.
//
//   RuleQueue queue(params, gradients);
//   const std::vector<std::pair<size_t, RuleState>> both{{0, {}}, {1, {}}};  // parameters 0 and 1
//   queue.add({rules::Decay{0.01f}}, both);
//   queue.add({rules::Apply{}}, both);
//   queue.run();

#include <span>
#include <utility>
#include <vector>

#include "kernels/optimizers/gpu_arrays.h"
#include "runtime/optim/optimizer.h"

namespace quintet {

class RuleQueue {
 public:
  /// Of each parameter its gradient, in the current device's memory.
  RuleQueue(std::span<const ParamSlot> params, std::span<const FloatPointer> gradients);

  /// A step for some of the parameters, by their index in `params`; what a state points to stays until run().
  void add(const RuleStep& step, std::span<const std::pair<size_t, RuleState>> states);
  /// Runs on the current device what was added since the last run.
  void run();

 private:
  struct Waiting {
    size_t step;
    RuleState state;
  };
  void run_pass(std::span<const RuleArrays> arrays, std::span<const RuleStep> steps) const;

  std::vector<RuleArrays> arrays_;
  std::vector<RuleStep> steps_;
  std::vector<std::vector<Waiting>> waiting_;  // of each parameter
};

}  // namespace quintet
