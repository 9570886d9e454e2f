#pragma once
// seqio.metrics.LegacyMetric and PassthroughLegacyMetric: a metric function as a metric object.

#include "data/metrics/metric.h"

namespace quintet::data {

/// `postprocess_fn` makes of targets and predictions what `metric_fn` compares, in the place of the task's; none: the
/// decoded text itself.
MetricObject legacy_metric(MetricFn metric_fn, PostprocessFn postprocess_fn = {});

}  // namespace quintet::data
