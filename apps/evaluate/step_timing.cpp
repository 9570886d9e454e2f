#include "apps/evaluate/step_timing.h"

namespace quintet {

std::map<std::string, double> timing_of(const TimedSteps& timed, const Metrics& metrics) {
  const auto steps = static_cast<double>(timed.steps);
  const double sequences = steps * static_cast<double>(timed.batch_size);
  std::map<std::string, double> values = {{"timing/seconds", timed.seconds},
                                          {"timing/seqs", sequences}};
  if (timed.seconds <= 0) return values;
  const auto add_rate = [&](const std::string& name, double count) {
    values["timing/" + name + "_per_second"] = count / timed.seconds;
    values["timing/" + name + "_per_second_per_core"] =
        count / timed.seconds / static_cast<double>(timed.devices);
  };
  values["timing/steps_per_second"] = steps / timed.seconds;
  add_rate("seqs", sequences);
  const auto targets = metrics.find("loss_per_all_target_tokens");
  if (targets != metrics.end()) add_rate("target_tokens", targets->second.count);
  return values;
}

}  // namespace quintet
