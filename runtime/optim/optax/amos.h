#pragma once
// jestimator's Amos (arXiv:2210.11693): each parameter has a size eta that its numbers are expected to come to.
//
//   amos({{.learning_rate = 0.01, .eta_fn = [](const std::string&, const std::vector<int64_t>&) { return 0.05; }}});

#include "runtime/optim/optax/optax.h"

namespace quintet {

using Shape = std::vector<int64_t>;
/// Of each parameter by its path and global shape: a number, or the shape of its states, in which axes may be 1; empty for
/// one number.
using ParamNumber = std::function<double(const std::string& path, const Shape& shape)>;
using ParamShape = std::function<Shape(const std::string& path, const Shape& shape)>;

struct AmosOptions {
  ScalarOrSchedule learning_rate = 0.0;
  ParamNumber eta_fn{};
  ParamShape shape_fn{};  // absent: states are as large as parameters
  double beta = 0.999, extra_l2 = 0.0, d_coef = 0.25, c_coef = 0.25, epsilon = 0x1p-125;
};
TransformationPtr scale_by_amos(const AmosOptions& options);

struct AmosOptimizerOptions : AmosOptions {
  std::optional<double> momentum{}, clip_value{};
};
TransformationPtr amos(const AmosOptimizerOptions& options);

}  // namespace quintet
