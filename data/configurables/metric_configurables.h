#pragma once
// The gin names of metrics and postprocessors: t5.evaluation.metrics.* and
// t5.data.postprocessors.*.
//
//   seqio.Task.metric_fns = [@metrics.squad, @metrics.bleu]
//   seqio.Task.postprocess_fn = @postprocessors.string_label_to_class_id
//   postprocessors.string_label_to_class_id.label_classes = ['no', 'yes']

#include "runtime/gin/registry/registry.h"

namespace quintet::data {

void register_metrics(gin::Registry& registry);

}  // namespace quintet::data
