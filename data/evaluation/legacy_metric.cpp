#include "data/evaluation/legacy_metric.h"

#include "data/evaluation/evaluator.h"

namespace quintet::data {

MetricObject legacy_metric(MetricFn metric_fn, PostprocessFn postprocess_fn) {
  const auto compute = [metric = metric_fn, postprocess_fn](const ModelOutput& output) {
    const auto processed = [&](const std::string& text, size_t i, bool is_target) -> Answer {
      return postprocess_fn ? postprocess_fn(text, output.inputs[i], is_target) : text;
    };
    Answers targets, predictions;
    for (size_t i = 0; i < output.inputs.size(); ++i)
      targets.push_back(processed(
          feature_text(output.inputs[i], output.features, output.target_field_name), i, true));
    for (size_t i = 0; i < output.outputs.size(); ++i)
      predictions.push_back(processed(output.outputs[i], i, false));
    return metric(targets, predictions, output.scores, output.aux_values);
  };
  return {metric_fn.name, metric_fn.model_output_type(), compute};
}

}  // namespace quintet::data
