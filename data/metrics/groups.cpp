#include <set>

#include "data/metrics/t5_metrics.h"

namespace quintet::data::metrics {
namespace {

struct Group {
  Answers targets, predictions;
};

/// Calls visit(group, target's value, prediction's value) for each example.
template <typename Visit>
void for_each_value(const std::string& name, const Answers& targets, const Answers& predictions,
                    const std::string& group_key, const std::string& value_key, Visit visit) {
  check_counts(name, targets.size(), predictions.size());
  const Answers groups = fields(targets, group_key, name, "target");
  const Answers wanted = fields(targets, value_key, name, "target");
  const Answers found = fields(predictions, value_key, name, "prediction");
  for (size_t i = 0; i < groups.size(); ++i) visit(groups[i], wanted[i], found[i]);
}

MetricValues mean_over(const std::map<Answer, Group>& groups, const MetricFn& metric,
                       bool by_group) {
  std::map<std::string, std::vector<double>> scores;
  for (const auto& [key, group] : groups)
    for (const auto& [name, score] : metric(group.targets, group.predictions)) {
      scores[name].push_back(score);
      if (by_group) scores[to_string(key) + "-" + name].push_back(score);
    }
  MetricValues means;
  for (const auto& [name, values] : scores) {
    double sum = 0;
    for (const double value : values) sum += value;
    means[name] = sum / static_cast<double>(values.size());
  }
  return means;
}

}  // namespace

MetricFn deduplicate_metric(MetricFn metric, std::string group_key, std::string value_key) {
  const std::string name = "deduplicate_metric(" + metric.name + ")";
  return {name, [=](const Answers& targets, const Answers& predictions) {
            std::set<Answer> seen;
            Group first;
            for_each_value(name, targets, predictions, group_key, value_key,
                           [&](const Answer& group, const Answer& wanted, const Answer& found) {
                             if (!seen.insert(group).second) return;
                             first.targets.push_back(wanted);
                             first.predictions.push_back(found);
                           });
            return metric(first.targets, first.predictions);
          }};
}

MetricFn mean_group_metric(MetricFn metric, std::string group_key, std::string value_key,
                           bool return_subgroup_scores) {
  const std::string name = "mean_group_metric(" + metric.name + ")";
  return {name, [=](const Answers& targets, const Answers& predictions) {
            std::map<Answer, Group> groups;
            for_each_value(name, targets, predictions, group_key, value_key,
                           [&](const Answer& group, const Answer& wanted, const Answer& found) {
                             groups[group].targets.push_back(wanted);
                             groups[group].predictions.push_back(found);
                           });
            return mean_over(groups, metric, return_subgroup_scores);
          }};
}

}  // namespace quintet::data::metrics
