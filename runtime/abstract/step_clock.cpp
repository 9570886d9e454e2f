#include "runtime/abstract/step_clock.h"

#include <algorithm>

namespace quintet {

void StepClock::op(const Cost& cost) {
  work(cost.flops, cost.bytes + machine_.score_passes * cost.score_bytes);
}

void StepClock::work(double flops, double bytes) {
  const double seconds =
      std::max({flops / (machine_.flops * machine_.matmul_efficiency),
                bytes / (machine_.memory_bytes * machine_.memory_efficiency), machine_.op_seconds});
  now_ += seconds;
  compute_ += seconds;
  flops_ += flops;
}

double StepClock::send(double seconds) {
  const double start = std::max(links_free_, now_);
  links_free_ = start + seconds;
  sending_ += seconds;
  if (machine_.overlap < 1) wait(start + (1 - machine_.overlap) * seconds);
  return links_free_;
}

void StepClock::wait(double moment) {
  exposed_ += std::max(0.0, moment - now_);
  now_ = std::max(now_, moment);
}

void StepClock::reset() { *this = StepClock(machine_); }

}  // namespace quintet
