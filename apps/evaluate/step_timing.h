#pragma once
// T5X's timing/ metrics of training and teacher-forced steps.
//
//   values.merge(timing_of({seconds, steps, batch_size, ranks.size()}, metrics));

#include <cstdint>
#include <map>
#include <string>

#include "runtime/metrics/metric.h"

namespace quintet {

struct TimedSteps {
  double seconds = 0;
  int64_t steps = 0, batch_size = 0;
  int64_t devices = 1;  // T5X's cores
};

/// timing/seconds, seqs, steps_per_second, and seqs and target_tokens per second, in all and per core.
/// Target tokens are all positions of the targets, as in T5X; `metrics` of the steps counts them.
std::map<std::string, double> timing_of(const TimedSteps& timed, const Metrics& metrics);

}  // namespace quintet
