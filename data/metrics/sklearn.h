#pragma once
// t5.evaluation.metrics.sklearn_metrics_wrapper: functions of sklearn.metrics, by their names
// there.
//
//   MetricFn cola = metrics::sklearn_metrics_wrapper("matthews_corrcoef", {.factor = 100});

#include <optional>

#include "data/metrics/metric.h"

namespace quintet::data::metrics {

struct SklearnOptions {
  std::string metric_dict_str = "";  // the metric's name; empty: the function's
  double factor = 1;                 // metric_post_process_fn of T5 only ever multiplies by 100
  // Of precision_score, recall_score, f1_score, fbeta_score and jaccard_score:
  std::string average = "binary";      // binary, micro, macro or weighted
  std::optional<Answers> labels = {};  // classes to average over; none: all that occur
  Answer pos_label = 1;
  double beta = 1;
  double zero_division = 0;  // where there is nothing to divide by
};

/// Throws a usage error with the nearest known name.
MetricFn sklearn_metrics_wrapper(const std::string& metric_str, const SklearnOptions& options = {});
std::vector<std::string> sklearn_metric_names();

/// Area under the ROC curve (NaN if all labels are equal) and average precision (0 without a
/// positive) of scores for labels 0 and 1, weighted; empty weights: all 1. Scores must not be NaN.
double roc_auc_score(const std::vector<int64_t>& labels, const std::vector<double>& scores,
                     const std::vector<double>& weights = {});
double average_precision_score(const std::vector<int64_t>& labels,
                               const std::vector<double>& scores,
                               const std::vector<double>& weights = {});

/// Weighted counts of one class.
struct ClassCounts {
  double both = 0, in_targets = 0, in_predictions = 0;
};
/// F-beta; `zero_division` where the class is nowhere.
double fbeta(const ClassCounts& counts, double beta = 1, double zero_division = 0);

}  // namespace quintet::data::metrics
