#pragma once
// optax.add_noise: Gaussian noise that anneals. The numbers are JAX's for the same seed: a function of the seed, the
// count of updates, the parameter and the element of the global array.
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

}  // namespace quintet
