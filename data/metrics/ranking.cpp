#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "data/metrics/sklearn.h"
#include "data/metrics/t5_metrics.h"
#include "runtime/base/check.h"

namespace quintet::data::metrics {
namespace {

/// Weight of positives and negatives with equal scores; in order of falling score.
struct Step {
  double positives = 0, negatives = 0;
};

std::vector<Step> steps_of(const std::vector<int64_t>& labels, const std::vector<double>& scores,
                           const std::vector<double>& weights) {
  for (size_t i = 0; i < scores.size(); ++i) {
    QT_CHECK_AS(ExitCode::kData, !std::isnan(scores[i]), "auc: score {} is NaN", i);
    QT_CHECK_AS(
        ExitCode::kData, labels[i] == 0 || labels[i] == 1,
        "auc: target {}: expected 0 or 1, found {}; give targets_threshold for other numbers", i,
        labels[i]);
  }
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  std::vector<Step> steps;
  for (size_t k = 0; k < order.size(); ++k) {
    const size_t i = order[k];
    if (k == 0 || scores[i] != scores[order[k - 1]]) steps.emplace_back();
    (labels[i] == 1 ? steps.back().positives : steps.back().negatives) +=
        weights.empty() ? 1 : weights[i];
  }
  return steps;
}

Step sum_of(const std::vector<Step>& steps) {
  Step sum;
  for (const Step& step : steps) {
    sum.positives += step.positives;
    sum.negatives += step.negatives;
  }
  return sum;
}

MetricValues auc_of(const std::string& name, const Answers& targets,
                    const std::vector<double>& scores, std::optional<double> threshold) {
  check_counts(name, targets.size(), scores.size());
  std::vector<int64_t> labels;
  if (threshold)
    for (const double target : numbers(targets, name, "target"))
      labels.push_back(target >= *threshold);
  else
    labels = integers(targets, name, "target");
  return {{"auc-roc", roc_auc_score(labels, scores)},
          {"auc-pr", average_precision_score(labels, scores)}};
}

/// One choice of an input.
struct Choice {
  const Answers* idx;
  bool is_correct;
  double weight, score;
};

std::vector<Choice> choices_of(const Answers& targets, const Scores& scores,
                               const RankClassification& options) {
  const std::string name = "rank_classification";
  check_counts(name, targets.size(), scores.size());
  std::vector<Choice> choices;
  for (size_t i = 0; i < targets.size(); ++i) {
    const Answers* parts = targets[i].get_if<Answers>();
    const Answers* idx =
        parts != nullptr && parts->size() == 4 ? (*parts)[0].get_if<Answers>() : nullptr;
    QT_CHECK_AS(ExitCode::kData,
                idx != nullptr && idx->size() == static_cast<size_t>(options.idx_len),
                "{}: target {}: expected (idx of {} numbers, is_correct, weight, length), found {}",
                name, i, options.idx_len, to_string(targets[i]));
    QT_CHECK_AS(ExitCode::kData, !std::isnan(scores[i]), "{}: score {} is NaN", name, i);
    const double length = options.normalize_by_target_length ? (*parts)[3].number() : 1;
    QT_CHECK_AS(ExitCode::kData, length > 0, "{}: target {} has length {}", name, i, length);
    choices.push_back({idx, (*parts)[1].number() != 0, (*parts)[2].number(), scores[i] / length});
  }
  std::sort(choices.begin(), choices.end(),
            [](const Choice& a, const Choice& b) { return *a.idx < *b.idx; });
  for (size_t i = 1; i < choices.size(); ++i)
    QT_CHECK_AS(ExitCode::kData, !(*choices[i].idx == *choices[i - 1].idx),
                "{}: two targets have the index {}; each choice of an input needs its own", name,
                to_string(Answer(*choices[i].idx)));
  return choices;
}

using Choices = std::span<const Choice>;

/// The choice with the largest score, the first of equals.
size_t best_of(Choices choices) {
  size_t best = 0;
  for (size_t i = 1; i < choices.size(); ++i)
    if (choices[i].score > choices[best].score) best = i;
  return best;
}

double percentage(double part, double whole) {
  QT_CHECK_AS(ExitCode::kData, whole > 0, "rank_classification: the weights sum to {}", whole);
  return 100 * part / whole;
}

/// Accuracy where inputs have different numbers of choices.
MetricValues accuracy_by_input(const std::vector<Choice>& choices) {
  double right = 0, sum = 0;
  for (size_t begin = 0, end = 0; begin < choices.size(); begin = end) {
    while (end < choices.size() && (*choices[end].idx)[0] == (*choices[begin].idx)[0]) ++end;
    const Choices group = Choices(choices).subspan(begin, end - begin);
    const Choice& best = group[best_of(group)];
    right += best.is_correct ? best.weight : 0;
    sum += best.weight;
  }
  return {{"accuracy", percentage(right, sum)}};
}

/// Probability of the second of two choices, in float32 as the reference: ties between examples
/// depend on it.
double second_probability(Choices pair) {
  const auto a = static_cast<float>(pair[0].score), b = static_cast<float>(pair[1].score);
  const float largest = std::max(a, b);
  const float first = std::exp(a - largest), second = std::exp(b - largest);
  return second / (first + second);
}

MetricValues rank_choices(std::vector<Choice> choices, const RankClassification& options) {
  if (!options.num_classes || *options.num_classes == 0) return accuracy_by_input(choices);
  const auto classes = static_cast<size_t>(*options.num_classes);
  QT_CHECK_AS(ExitCode::kData, choices.size() % classes == 0,
              "rank_classification: {} choices are no multiple of num_classes = {}", choices.size(),
              classes);
  for (Choice& choice : choices) choice.score = static_cast<float>(choice.score);
  double right = 0, weight_sum = 0;
  bool several_right = false;
  std::vector<ClassCounts> counts(classes);
  std::vector<int64_t> labels;
  std::vector<double> scores, weights;
  ClassCounts second;  // as f1 of two classes counts: an input without a right choice is of class 0
  for (size_t begin = 0; begin < choices.size(); begin += classes) {
    const Choices group = Choices(choices).subspan(begin, classes);
    const size_t best = best_of(group);
    const double weight = group[0].weight;
    int64_t correct = 0;
    for (size_t i = 0; i < classes; ++i) {
      correct += group[i].is_correct;
      counts[i].in_targets += group[i].is_correct ? weight : 0;
    }
    counts[best].in_predictions += weight;
    counts[best].both += group[best].is_correct ? weight : 0;
    several_right |= correct > 1;
    right += group[best].is_correct ? weight : 0;
    weight_sum += weight;
    if (classes != 2) continue;
    const bool is_second = !group[0].is_correct && group[1].is_correct;
    second.in_targets += is_second ? weight : 0;
    second.in_predictions += best == 1 ? weight : 0;
    second.both += is_second && best == 1 ? weight : 0;
    labels.push_back(group[1].is_correct);
    scores.push_back(second_probability(group));
    weights.push_back(weight);
  }
  MetricValues metrics = {{"accuracy", percentage(right, weight_sum)}};
  if (several_right) return metrics;
  if (classes == 2) {
    metrics["f1"] = 100 * fbeta(second);
    metrics["auc-roc"] = 100 * roc_auc_score(labels, scores, weights);
    metrics["auc-pr"] = 100 * average_precision_score(labels, scores, weights);
  } else {
    double sum = 0;
    for (const ClassCounts& count : counts) sum += fbeta(count);
    metrics[fmt::format("mean_{}class_f1", classes)] = 100 * sum / static_cast<double>(classes);
  }
  return metrics;
}

}  // namespace

double roc_auc_score(const std::vector<int64_t>& labels, const std::vector<double>& scores,
                     const std::vector<double>& weights) {
  const auto steps = steps_of(labels, scores, weights);
  const Step sum = sum_of(steps);
  if (sum.positives == 0 || sum.negatives == 0) return std::numeric_limits<double>::quiet_NaN();
  double area = 0, positives = 0;
  for (const Step& step : steps) {
    area += step.negatives * (positives + step.positives / 2);
    positives += step.positives;
  }
  return area / (sum.positives * sum.negatives);
}

double average_precision_score(const std::vector<int64_t>& labels,
                               const std::vector<double>& scores,
                               const std::vector<double>& weights) {
  const auto steps = steps_of(labels, scores, weights);
  const Step sum = sum_of(steps);
  if (sum.positives == 0) return 0;
  double area = 0, positives = 0, all = 0;
  for (const Step& step : steps) {
    positives += step.positives;
    all += step.positives + step.negatives;
    if (all > 0) area += step.positives / sum.positives * (positives / all);
  }
  return area;
}

MetricFn auc(std::optional<double> targets_threshold) {
  return {"auc", [=](const Answers& targets, const Answers& predictions) {
            return auc_of("auc", targets, numbers(predictions, "auc", "prediction"),
                          targets_threshold);
          }};
}

MetricFn score_auc(std::optional<double> targets_threshold) {
  return {"score_auc", ScoreMetric([=](const Answers& targets, const Scores& scores) {
            return auc_of("score_auc", targets, scores, targets_threshold);
          })};
}

MetricFn rank_classification(const RankClassification& options) {
  return {"rank_classification", ScoreMetric([=](const Answers& targets, const Scores& scores) {
            return rank_choices(choices_of(targets, scores, options), options);
          })};
}

}  // namespace quintet::data::metrics
