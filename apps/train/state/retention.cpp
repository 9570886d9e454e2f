#include "apps/train/state/retention.h"

#include <algorithm>

#include "runtime/base/nearest.h"
#include "runtime/metrics/metrics_log.h"

namespace quintet {

std::vector<int64_t> removed_steps(const SaveCheckpointConfig& config, std::vector<int64_t> steps,
                                   const std::map<int64_t, double>& metrics) {
  if (!config.keep || steps.empty()) return {};
  const BestCheckpoints& best = config.best;
  const int64_t saved = steps.back();
  steps.pop_back();
  std::erase_if(steps, [&](int64_t step) {
    return (best.force_keep_period > 0 && step % best.force_keep_period == 0) ||
           (!best.metric.empty() && best.keep_checkpoints_without_metrics &&
            !metrics.contains(step));
  });
  if (best.metric.empty()) {
    steps.push_back(saved);  // one of the newest
  } else {
    const bool max = best.mode == "max";
    const double infinity = std::numeric_limits<double>::infinity();
    const auto badness = [&](int64_t step) {
      const auto found = metrics.find(step);
      if (found == metrics.end()) return infinity;
      return max ? -found->second : found->second;
    };
    std::stable_sort(steps.begin(), steps.end(),
                     [&](int64_t a, int64_t b) { return badness(a) > badness(b); });
  }
  const auto surplus = std::max<std::ptrdiff_t>(std::ssize(steps) - *config.keep, 0);
  steps.resize(static_cast<size_t>(surplus));
  return steps;
}

void set_retention(CheckpointOptions& options, const SaveCheckpointConfig& config,
                   const std::filesystem::path& model_dir) {
  options.keep = static_cast<int>(config.keep.value_or(0));
  const std::string& metric = config.best.metric;
  if (metric.empty() && config.best.force_keep_period == 0) return;
  options.choose_removed = [config, metric, file = model_dir / "metrics.jsonl", warned = false](
                               const std::vector<int64_t>& steps,
                               std::vector<std::string>& warnings) mutable {
    std::map<int64_t, double> values;
    if (!metric.empty()) values = MetricsLog::values(file, metric);
    if (!metric.empty() && values.empty() && !warned &&
        std::ssize(steps) > config.keep.value_or(0) + 1) {
      const std::set<std::string> known = MetricsLog::metrics(file);
      warnings.push_back(fmt::format("there is no metric '{}' by which checkpoints are kept{}",
                                     metric, did_you_mean(metric, {known.begin(), known.end()})));
      warned = true;
    }
    return removed_steps(config, steps, values);
  };
}

}  // namespace quintet
