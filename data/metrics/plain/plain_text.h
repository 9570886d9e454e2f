#pragma once
// Metrics of answers that are plain text, without a postprocessor: what `quintet finetune --metrics` names.
// All are percentages under their names and throw what t5_metrics.h's do.

#include "data/metrics/metric.h"

namespace quintet::data::metrics {

/// "exact_match": the share of answers that are equal, white space at their ends aside.
MetricFn exact_match();
/// "f1": SQuAD's mean F1 of the words of both.
MetricFn word_f1();
/// "chrf": sacrebleu's chrF2.
MetricFn chrf();
/// "matthews_corrcoef" of the texts as classes.
MetricFn matthews();
/// "spearman_corrcoef" of the numbers that the texts are. A prediction that is none counts as below all
/// targets; a target that is none is an error.
MetricFn spearman();
/// "confusion_matrix", a Markdown table: a row for each class as target, a column for each as prediction and one
/// for what is none of them. A target that is none is an error.
MetricFn confusion_matrix(std::vector<std::string> classes);

}  // namespace quintet::data::metrics
