#pragma once
// t5x.optimizers.MultiOptimizer: an optimizer for each group of parameters; parameters of no group
// stay as they are and have no state.
//
//   multi_optimizer({{matching("^/encoder/"), adafactor()},
//                    {matching("^/decoder/"), adafactor({.beta1 = 0.9})}});

#include <functional>
#include <utility>
#include <vector>

#include "runtime/optim/optimizer.h"

namespace quintet {

/// Whether a parameter belongs to a group; gets its path with a slash before it, as Flax's
/// ModelParamTraversal passes it: "/encoder/relpos_bias/rel_embedding".
using Traversal = std::function<bool(const std::string& path)>;
/// The traversal of all paths that a regular expression is found in.
Traversal matching(const std::string& expression);

/// A group of parameters, and the binding that says so, for messages.
struct ParamGroup {
  Traversal traversal;
  std::string where{};
  ParamGroup(Traversal t, std::string w = {}) : traversal(std::move(t)), where(std::move(w)) {}
};

/// State keeps the names it has in its group's optimizer; optax's, which has no names of parameters
/// at its front, goes under the number of the group. Throws a usage error if two groups match a
/// parameter, or a group none, which T5X does not say.
OptimizerPtr multi_optimizer(std::vector<std::pair<ParamGroup, OptimizerPtr>> groups);

}  // namespace quintet
