#pragma once
// The postprocessors of t5.data.postprocessors, each with the arguments it has there.
//
//   Task::Config{.., .postprocess_fn = postprocessors::string_label_to_class_id({"no", "yes"})}
//
// They throw kData, naming the example, where a feature that they read is missing.

#include "data/metrics/metric.h"

namespace quintet::data::postprocessors {

/// The number, else `default_value`. Reads what Python's float() reads.
PostprocessFn string_to_float(double default_value = -1.0);
PostprocessFn lower_text();
/// Index in label_classes, else `default_value`.
PostprocessFn string_label_to_class_id(std::vector<std::string> label_classes,
                                       int64_t default_value = -1);
/// {value: class of "False", "True"}; targets also {group: feature idx/question}.
PostprocessFn multirc();
/// Predictions {value: text}; targets {value: feature answers, group: (idx/passage, idx/query)}.
PostprocessFn record();
/// Predictions: the text; targets: the feature answers.
PostprocessFn qa();
/// Predictions: the text; targets {answers, context} of those features.
PostprocessFn span_qa();
/// Targets: the feature label. Predictions: 1 if the text names the referent targets_pretokenized,
/// 0 if not, -1 if it is empty.
PostprocessFn wsc_simple();
/// Targets: (idx, is_correct, weight or 1, length of the feature targets) and the features named;
/// scores as they are.
PostprocessFn rank_classification(std::vector<std::string> passthrough_feature_keys = {});

/// One after the other.
PostprocessFn chain(std::vector<PostprocessFn> postprocessors);

}  // namespace quintet::data::postprocessors
