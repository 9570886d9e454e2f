#include "data/metrics.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/nearest.h"

namespace quintet::data {
namespace {

const std::vector<MetricFn>& all_metrics() {
  static const std::vector<MetricFn> metrics = {
      {"accuracy", accuracy},
      {"sequence_accuracy", sequence_accuracy},
      {"exact_match", exact_match},
  };
  return metrics;
}

double percent_equal(const Texts& targets, const Texts& predictions) {
  QT_CHECK_AS(ExitCode::kData, targets.size() == predictions.size(),
              "metrics: {} targets but {} predictions", targets.size(), predictions.size());
  QT_CHECK_AS(ExitCode::kData, !targets.empty(), "metrics: no example to evaluate");
  int64_t equal = 0;
  for (size_t i = 0; i < targets.size(); ++i) equal += targets[i] == predictions[i];
  return 100.0 * (static_cast<double>(equal) / static_cast<double>(targets.size()));
}

}  // namespace

Metrics accuracy(const Texts& targets, const Texts& predictions) {
  return {{"accuracy", percent_equal(targets, predictions)}};
}

Metrics sequence_accuracy(const Texts& targets, const Texts& predictions) {
  return {{"sequence_accuracy", percent_equal(targets, predictions)}};
}

Metrics exact_match(const Texts& targets, const Texts& predictions) {
  return {{"exact_match", targets == predictions ? 100.0 : 0.0}};
}

MetricFn metric_by_name(std::string_view name) {
  for (const MetricFn& metric : all_metrics())
    if (metric.name == name) return metric;
  fail(ExitCode::kUsage, "metric '{}' is not known{}; the known ones are {}", name,
       did_you_mean(name, metric_names()), fmt::join(metric_names(), ", "));
}

std::vector<std::string> metric_names() {
  std::vector<std::string> names;
  for (const MetricFn& metric : all_metrics()) names.push_back(metric.name);
  return names;
}

}  // namespace quintet::data
