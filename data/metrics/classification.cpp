#include "data/metrics/sklearn.h"
#include "data/metrics/t5_metrics.h"
#include "runtime/base/check.h"

namespace quintet::data::metrics {
namespace {

double percent_equal(std::string_view metric, const Answers& targets, const Answers& predictions) {
  check_counts(metric, targets.size(), predictions.size());
  int64_t equal = 0;
  for (size_t i = 0; i < targets.size(); ++i) equal += targets[i] == predictions[i];
  return 100.0 * (static_cast<double>(equal) / static_cast<double>(targets.size()));
}

MetricValues f1_with_invalid(const std::string& name, const Answers& targets,
                             const Answers& predictions) {
  check_counts(name, targets.size(), predictions.size());
  const auto wanted = integers(targets, name, "target");
  const auto found = integers(predictions, name, "prediction");
  double both = 0, wanted_ones = 0, found_ones = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    QT_CHECK_AS(ExitCode::kData, wanted[i] == 0 || wanted[i] == 1,
                "{}: target {}: expected class 0 or 1, found {}", name, i, wanted[i]);
    const bool valid = found[i] == 0 || found[i] == 1;
    const int64_t counted = valid ? found[i] : 1 - wanted[i];
    both += wanted[i] == 1 && counted == 1;
    wanted_ones += wanted[i] == 1;
    found_ones += counted == 1;
  }
  const double sum = wanted_ones + found_ones;
  return {{"f1", sum == 0 ? 0.0 : 100 * 2 * both / sum}};
}

}  // namespace

MetricFn accuracy() {
  return {"accuracy", [](const Answers& targets, const Answers& predictions) -> MetricValues {
            return {{"accuracy", percent_equal("accuracy", targets, predictions)}};
          }};
}

MetricFn sequence_accuracy() {
  return {
      "sequence_accuracy", [](const Answers& targets, const Answers& predictions) -> MetricValues {
        return {{"sequence_accuracy", percent_equal("sequence_accuracy", targets, predictions)}};
      }};
}

MetricFn all_match() {
  return {"all_match", [](const Answers& targets, const Answers& predictions) -> MetricValues {
            check_counts("all_match", targets.size(), predictions.size());
            return {{"exact_match", targets == predictions ? 100.0 : 0.0}};
          }};
}

MetricFn f1_score_with_invalid() {
  return {"f1_score_with_invalid", [](const Answers& targets, const Answers& predictions) {
            return f1_with_invalid("f1_score_with_invalid", targets, predictions);
          }};
}

MetricFn multirc_f1_over_all_answers() {
  const std::string name = "multirc_f1_over_all_answers";
  return {name, [name](const Answers& targets, const Answers& predictions) {
            return f1_with_invalid(name, fields(targets, "value", name, "target"),
                                   fields(predictions, "value", name, "prediction"));
          }};
}

MetricFn mean_multiclass_f1(int64_t num_classes) {
  QT_CHECK(num_classes > 0, "mean_multiclass_f1: num_classes must be positive, found {}",
           num_classes);
  SklearnOptions options;
  options.metric_dict_str = fmt::format("mean_{}class_f1", num_classes);
  options.factor = 100;
  options.average = "macro";
  options.labels.emplace();
  for (int64_t label = 0; label < num_classes; ++label) options.labels->push_back(label);
  return sklearn_metrics_wrapper("fbeta_score", options);
}

}  // namespace quintet::data::metrics
