#pragma once
// How long ops take on this machine, for `quintet bench cluster`: from training steps of small models on every
// layout of the ranks, of which a simulation counts what each op does and a profile how long it took.

#include <string>
#include <vector>

#include "runtime/abstract/step_clock.h"
#include "runtime/mesh/collectives/collectives.h"

namespace quintet {

/// An op's calls of one step.
struct OpSample {
  double calls = 0;
  Cost cost = {};
  double seconds = 0;
};

/// The least sum of squared errors relative to the fitted time, not to the measured one: what took long by chance counts
/// as much as what took little. No part is negative. At least one sample, of more than 0 seconds.
OpTime fit_op_time(const std::vector<OpSample>& samples);

struct Product {
  int64_t m, k, n;
  double seconds;
};

struct OpMeasurements {
  OpTimes ops;  // "optimizer" and "copy" among them
  std::vector<Product> products;
  double flops = 0;   // a second, of the fastest product
  double bytes = 0;   // a second, read and written by a large copy
  double launch = 0;  // seconds of an op that does nothing, the host's work for it too
};

/// All ranks of `comm` work at once, as in training; medians of the slowest rank of each step. dtype: float32, or bfloat16 on a GPU.
/// repeats: runs of the steps of a layout, at least 1.
OpMeasurements measure_ops(Comm& comm, const std::string& dtype, int repeats);

}  // namespace quintet
