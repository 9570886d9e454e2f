#pragma once
// Gaussian noise on gradients: optax.add_noise, which anneals, and optax.contrib.differentially_private_aggregate. The
// numbers are JAX's for the same seed: a function of the seed, the count of updates, the parameter and the element of the
// global array.
//
//   chain({add_noise({.eta = 0.01, .gamma = 0.55, .seed = 0}), scale_by_learning_rate(1e-3)})

#include "runtime/optim/optax/optax.h"

namespace quintet {

struct NoiseOptions {
  double eta = 0.01, gamma = 0.55;  // variance: eta / t^gamma
  int64_t seed = 0;
};
TransformationPtr add_noise(const NoiseOptions& options);

struct NoisySgdOptions : NoiseOptions {
  ScalarOrSchedule learning_rate = 0.0;
};
TransformationPtr noisy_sgd(const NoisySgdOptions& options);

/// The mean of the gradients of examples, each clipped to a norm, with noise on their sum (Abadi et al.,
/// arXiv:1607.00133). The trainer clips (Optimizer::example_clip). First of a chain.
struct PrivateAggregateOptions {
  double l2_norm_clip = 0, noise_multiplier = 0;  // deviation of the noise: their product
  int64_t seed = 0;
};
TransformationPtr differentially_private_aggregate(const PrivateAggregateOptions& options);

struct DpsgdOptions : PrivateAggregateOptions {
  ScalarOrSchedule learning_rate = 0.0;
  std::optional<double> momentum{};
  bool nesterov = false;
};
TransformationPtr dpsgd(const DpsgdOptions& options);

}  // namespace quintet
