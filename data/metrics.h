#pragma once
// Metrics over the texts of a whole evaluation set, under t5.evaluation.metrics' names.
//
//   const Metrics got = accuracy({"nine"}, {"nine"});    // {{"accuracy", 100.0}}

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::data {

class Example;

using Texts = std::vector<std::string>;
/// Name -> value.
using Metrics = std::map<std::string, double>;

/// A metric of predictions against targets (t5's signature (targets, predictions)).
struct MetricFn {
  std::string name;
  std::function<Metrics(const Texts& targets, const Texts& predictions)> compute;
};
/// seqio's postprocess_fn(decoded_model_output, example=, is_target=).
using PostprocessFn =
    std::function<std::string(const std::string& decoded, const Example& example, bool is_target)>;

/// Percentage of predictions equal to their target.
Metrics accuracy(const Texts& targets, const Texts& predictions);
/// The same under the name sequence_accuracy.
Metrics sequence_accuracy(const Texts& targets, const Texts& predictions);
/// 100 if all are right, else 0, under the name exact_match.
Metrics exact_match(const Texts& targets, const Texts& predictions);

/// Throws a usage error with the nearest known name.
MetricFn metric_by_name(std::string_view name);
std::vector<std::string> metric_names();

}  // namespace quintet::data
