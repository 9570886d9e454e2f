#pragma once
// Equal to float32 rounding.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/layouts/run.h"

namespace quintet::testing {

/// Largest difference over the largest value.
inline double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 1e-12, difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a[i])));
    difference = std::max(difference, std::abs(static_cast<double>(a[i]) - b[i]));
  }
  return difference / largest;
}

inline void expect_close(const Arrays& want, const Arrays& got, double tolerance,
                         const char* what) {
  ASSERT_EQ(want.size(), got.size());
  for (const auto& [name, values] : want) {
    ASSERT_EQ(values.size(), got.at(name).size()) << name;
    EXPECT_LE(distance(values, got.at(name)), tolerance) << what << " of " << name;
  }
}

/// `ranks`: what every rank of a mesh found.
inline void expect_same(const Result& want, const std::vector<Result>& ranks) {
  for (const Result& got : ranks) {
    EXPECT_NEAR(got.loss, want.loss, 2e-6 * want.loss);
    // Sums of up to a hundred rounded products in another order.
    expect_close(want.gradients, got.gradients, 2e-5, "gradient");
    // Adafactor divides by roots of means of squares: a gradient's relative error, times the rate.
    expect_close(want.parameters, got.parameters, 2e-5, "value");
    ASSERT_EQ(want.metrics.size(), got.metrics.size());
    for (const auto& [name, metric] : want.metrics) {
      if (got.metrics.at(name).value() == metric.value()) continue;  // infinities, too
      // A mean of quotients by single weights: one near zero, which rounding moves, weighs most.
      const double tolerance =
          name.starts_with("weight_update_divided_by_weight_rms/") ? 5e-2 : 1e-4;
      EXPECT_NEAR(got.metrics.at(name).value(), metric.value(),
                  tolerance * std::abs(metric.value()) + 1e-7)
          << name;
    }
    if (::testing::Test::HasFailure()) return;
  }
}

/// A (data, model) or (data, expert, model) mesh with T5X's rules for it.
inline Partitioning partitioning(const std::vector<int>& sizes, int activation_dims,
                                 int parameter_dims) {
  const AxisRuleOptions options{.activation_partitioning_dims = activation_dims,
                                .parameter_partitioning_dims = parameter_dims,
                                .additional_rules = {}};
  if (sizes.size() == 3)
    return {{{"data", sizes[0]}, {"expert", sizes[1]}, {"model", sizes[2]}},
            moe_logical_axis_rules(options)};
  return {{{"data", sizes[0]}, {"model", sizes[1]}}, standard_logical_axis_rules(options)};
}

/// A (data, model) mesh on which the length of activations is sharded over `model` between blocks.
inline Partitioning sequence_parallel(int data, int model, int parameter_dims) {
  return {{{"data", data}, {"model", model}},
          standard_logical_axis_rules(
              {.parameter_partitioning_dims = parameter_dims, .sequence_parallel = true})};
}

/// A (data, model) mesh on which the length of activations, and nothing else, is sharded over `model`.
inline Partitioning context_parallel(int data, int model, int parameter_dims) {
  return {{{"data", data}, {"model", model}},
          standard_logical_axis_rules(
              {.parameter_partitioning_dims = parameter_dims, .context_parallel = true})};
}

/// Sequence parallelism of a model with experts.
inline Partitioning sequence_parallel_experts(int data, int expert, int model, int parameter_dims) {
  return {{{"data", data}, {"expert", expert}, {"model", model}},
          moe_logical_axis_rules(
              {.parameter_partitioning_dims = parameter_dims, .sequence_parallel = true})};
}

/// As many copies of a mesh along an axis `replica`, which batches are sharded over too.
inline Partitioning replicated(int replicas, Partitioning one) {
  one.mesh.insert(one.mesh.begin(), {"replica", replicas});
  return {one.mesh, with_replicas(one.rules)};
}

inline std::string describe(const Training& training, const std::vector<int>& sizes,
                            int activation_dims, int parameter_dims) {
  return fmt::format(
      "mesh {}, activations {}D, parameters {}D, network {}, remat {}{}, {} microbatches",
      fmt::join(sizes, " x "), activation_dims, parameter_dims, static_cast<int>(training.network),
      training.remat, training.packed ? ", packed" : "", training.microbatches);
}

}  // namespace quintet::testing
