#include "data/metrics/metric.h"

#include "runtime/base/check.h"

namespace quintet::data {

MetricValues MetricFn::operator()(const Answers& targets, const Answers& predictions) const {
  const auto* of_predictions = std::get_if<PredictMetric>(&compute);
  QT_CHECK(of_predictions != nullptr, "metric '{}' does not compare predictions", name);
  return (*of_predictions)(targets, predictions);
}

MetricValues MetricFn::operator()(const Answers& targets, const Answers& predictions,
                                  const Scores& scores, const AuxValues& aux_values) const {
  if (const auto* of_scores = std::get_if<ScoreMetric>(&compute))
    return (*of_scores)(targets, scores);
  if (const auto* with_aux = std::get_if<PredictWithAuxMetric>(&compute))
    return (*with_aux)(targets, predictions, aux_values);
  return (*this)(targets, predictions);
}

MetricValue::operator double() const {
  QT_CHECK(scalar() != nullptr, "a metric gave a value of kind {} where a number is expected",
           kind());
  return *scalar();
}

const char* MetricValue::kind() const {
  constexpr const char* kKinds[] = {"number", "text", "histogram", "image", "audio", "tensor"};
  return kKinds[value_.index()];
}

std::map<std::string, double> scalars_of(const MetricValues& metrics) {
  std::map<std::string, double> scalars;
  for (const auto& [name, value] : metrics)
    if (const double* number = value.scalar()) scalars[name] = *number;
  return scalars;
}

}  // namespace quintet::data
