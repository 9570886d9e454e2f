#include "data/metrics/metric.h"

#include "runtime/base/check.h"

namespace quintet::data {

Metrics MetricFn::operator()(const Answers& targets, const Answers& predictions) const {
  const auto* of_predictions = std::get_if<PredictMetric>(&compute);
  QT_CHECK(of_predictions != nullptr, "metric '{}' does not compare predictions", name);
  return (*of_predictions)(targets, predictions);
}

}  // namespace quintet::data
