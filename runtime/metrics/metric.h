#pragma once
// Metrics as T5X counts them: sums that can be merged over microbatches, hosts and steps.

#include <map>
#include <string>

namespace quintet {

/// total / count. Of a per-step metric (T5X's AveragePerStep, "loss" for one) the count is of
/// steps.
struct Metric {
  double total = 0, count = 0;
  bool per_step = false;
  double value() const { return count == 0 ? 0 : total / count; }
};

using Metrics = std::map<std::string, Metric>;

/// Adds a further microbatch of the same step: totals and counts add, steps do not.
void merge_microbatch(Metrics& into, const Metrics& more);
/// Adds a further step.
void merge_step(Metrics& into, const Metrics& more);

}  // namespace quintet
