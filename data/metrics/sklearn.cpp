#include "data/metrics/sklearn.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "runtime/base/check.h"
#include "runtime/base/nearest.h"

namespace quintet::data::metrics {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Classes of targets and predictions as counts: [target class][predicted class].
struct Confusion {
  std::vector<Answer> classes;  // in order
  std::vector<std::vector<double>> counts;
  double size = 0, right = 0;

  Confusion(const Answers& targets, const Answers& predictions) {
    std::set<Answer> all(targets.begin(), targets.end());
    all.insert(predictions.begin(), predictions.end());
    classes.assign(all.begin(), all.end());
    counts.assign(classes.size(), std::vector<double>(classes.size()));
    for (size_t i = 0; i < targets.size(); ++i) {
      const size_t row = index(targets[i]), column = index(predictions[i]);
      ++counts[row][column];
      right += row == column;
    }
    size = static_cast<double>(targets.size());
  }
  size_t index(const Answer& label) const {
    return static_cast<size_t>(std::lower_bound(classes.begin(), classes.end(), label) -
                               classes.begin());
  }
  double row_sum(size_t row) const {
    double sum = 0;
    for (const double count : counts[row]) sum += count;
    return sum;
  }
  double column_sum(size_t column) const {
    double sum = 0;
    for (const auto& row : counts) sum += row[column];
    return sum;
  }
  ClassCounts of(const Answer& label) const {
    const size_t i = index(label);
    if (i == classes.size() || !(classes[i] == label)) return {};
    return {counts[i][i], row_sum(i), column_sum(i)};
  }
};

double ratio(double numerator, double denominator, double otherwise) {
  return denominator == 0 ? otherwise : numerator / denominator;
}

/// A score of one class, averaged over classes as `average` says.
template <typename Score>
double averaged(const Confusion& confusion, const SklearnOptions& options, Score score) {
  const Answers labels = options.labels.value_or(confusion.classes);
  if (options.average == "binary") {
    QT_CHECK_AS(ExitCode::kData, confusion.classes.size() <= 2,
                "sklearn_metrics_wrapper: average = 'binary', but there are {} classes; choose "
                "'micro', 'macro' or 'weighted'",
                confusion.classes.size());
    return score(confusion.of(options.pos_label));
  }
  ClassCounts sum;
  double total = 0, weight_sum = 0;
  for (const Answer& label : labels) {
    const ClassCounts counts = confusion.of(label);
    const double weight = options.average == "weighted" ? counts.in_targets : 1;
    total += weight * score(counts);
    weight_sum += weight;
    sum = {sum.both + counts.both, sum.in_targets + counts.in_targets,
           sum.in_predictions + counts.in_predictions};
  }
  if (options.average == "micro") return score(sum);
  return ratio(total, weight_sum, options.zero_division);
}

double matthews_corrcoef(const Confusion& c) {
  double rows_columns = 0, rows = 0, columns = 0;
  for (size_t i = 0; i < c.classes.size(); ++i) {
    rows_columns += c.row_sum(i) * c.column_sum(i);
    rows += c.row_sum(i) * c.row_sum(i);
    columns += c.column_sum(i) * c.column_sum(i);
  }
  const double covariance = c.right * c.size - rows_columns;
  const double variances = (c.size * c.size - rows) * (c.size * c.size - columns);
  return variances == 0 ? 0 : covariance / std::sqrt(variances);
}

double cohen_kappa_score(const Confusion& c) {
  double expected = 0;
  for (size_t i = 0; i < c.classes.size(); ++i) expected += c.row_sum(i) * c.column_sum(i) / c.size;
  return ratio(c.right - expected, c.size - expected, kNan);
}

double balanced_accuracy_score(const Confusion& c) {
  double sum = 0, present = 0;
  for (size_t i = 0; i < c.classes.size(); ++i) {
    const double row = c.row_sum(i);
    if (row == 0) continue;
    sum += c.counts[i][i] / row;
    ++present;
  }
  return sum / present;
}

using Numbers = std::vector<double>;

double mean_of(const Numbers& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

template <typename Error>
Numbers errors(const Numbers& targets, const Numbers& predictions, Error error) {
  Numbers all;
  for (size_t i = 0; i < targets.size(); ++i) all.push_back(error(targets[i] - predictions[i]));
  return all;
}
double square(double x) { return x * x; }
double magnitude(double x) { return std::abs(x); }

double mean_squared_error(const Numbers& targets, const Numbers& predictions) {
  return mean_of(errors(targets, predictions, square));
}

double median(Numbers values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// 1 - unexplained / variance; sklearn's values where the targets do not vary.
double explained(double unexplained, const Numbers& targets) {
  const double mean = mean_of(targets);
  Numbers squares;
  for (const double target : targets) squares.push_back(square(target - mean));
  const double variance = mean_of(squares);
  if (variance == 0) return unexplained == 0 ? 1 : 0;
  return 1 - unexplained / variance;
}

double r2_score(const Numbers& targets, const Numbers& predictions) {
  return targets.size() < 2 ? kNan : explained(mean_squared_error(targets, predictions), targets);
}

double explained_variance_score(const Numbers& targets, const Numbers& predictions) {
  const Numbers residuals = errors(targets, predictions, [](double x) { return x; });
  const double mean = mean_of(residuals);
  Numbers squares;
  for (const double residual : residuals) squares.push_back(square(residual - mean));
  return explained(mean_of(squares), targets);
}

using OfClasses = double (*)(const Confusion&, const SklearnOptions&);
using OfNumbers = double (*)(const Numbers& targets, const Numbers& predictions);
using OfLabels = double (*)(const std::vector<int64_t>&, const Numbers&, const Numbers&);
using Function = std::variant<OfClasses, OfNumbers, OfLabels>;

const std::vector<std::pair<std::string, Function>>& functions() {
  using C = const Confusion&;
  using O = const SklearnOptions&;
  using N = const Numbers&;
  static const std::vector<std::pair<std::string, Function>> all = {
      {"accuracy_score", OfClasses([](C c, O) { return c.right / c.size; })},
      {"zero_one_loss", OfClasses([](C c, O) { return 1 - c.right / c.size; })},
      {"hamming_loss", OfClasses([](C c, O) { return 1 - c.right / c.size; })},
      {"balanced_accuracy_score", OfClasses([](C c, O) { return balanced_accuracy_score(c); })},
      {"matthews_corrcoef", OfClasses([](C c, O) { return matthews_corrcoef(c); })},
      {"cohen_kappa_score", OfClasses([](C c, O) { return cohen_kappa_score(c); })},
      {"precision_score", OfClasses([](C c, O o) {
         return averaged(c, o, [&](const ClassCounts& k) {
           return ratio(k.both, k.in_predictions, o.zero_division);
         });
       })},
      {"recall_score", OfClasses([](C c, O o) {
         return averaged(c, o, [&](const ClassCounts& k) {
           return ratio(k.both, k.in_targets, o.zero_division);
         });
       })},
      {"jaccard_score", OfClasses([](C c, O o) {
         return averaged(c, o, [&](const ClassCounts& k) {
           return ratio(k.both, k.in_targets + k.in_predictions - k.both, o.zero_division);
         });
       })},
      {"f1_score", OfClasses([](C c, O o) {
         return averaged(c, o, [&](const ClassCounts& k) { return fbeta(k, 1, o.zero_division); });
       })},
      {"fbeta_score", OfClasses([](C c, O o) {
         return averaged(c, o,
                         [&](const ClassCounts& k) { return fbeta(k, o.beta, o.zero_division); });
       })},
      {"mean_squared_error", OfNumbers(mean_squared_error)},
      {"root_mean_squared_error",
       OfNumbers([](N t, N p) { return std::sqrt(mean_squared_error(t, p)); })},
      {"mean_absolute_error", OfNumbers([](N t, N p) { return mean_of(errors(t, p, magnitude)); })},
      {"median_absolute_error",
       OfNumbers([](N t, N p) { return median(errors(t, p, magnitude)); })},
      {"max_error", OfNumbers([](N t, N p) {
         const Numbers sizes = errors(t, p, magnitude);
         return *std::max_element(sizes.begin(), sizes.end());
       })},
      {"r2_score", OfNumbers(r2_score)},
      {"explained_variance_score", OfNumbers(explained_variance_score)},
      {"roc_auc_score", OfLabels(roc_auc_score)},
      {"average_precision_score", OfLabels(average_precision_score)},
  };
  return all;
}

Function function_named(const std::string& name) {
  for (const auto& [known, function] : functions())
    if (known == name) return function;
  fail(ExitCode::kUsage,
       "sklearn_metrics_wrapper: metric_str '{}' is not known{}; the known ones are {}", name,
       did_you_mean(name, sklearn_metric_names()), fmt::join(sklearn_metric_names(), ", "));
}

}  // namespace

double fbeta(const ClassCounts& counts, double beta, double zero_division) {
  const double square_beta = beta * beta;
  return ratio((1 + square_beta) * counts.both,
               square_beta * counts.in_targets + counts.in_predictions, zero_division);
}

std::vector<std::string> sklearn_metric_names() {
  std::vector<std::string> names;
  for (const auto& [name, function] : functions()) names.push_back(name);
  return names;
}

MetricFn sklearn_metrics_wrapper(const std::string& metric_str, const SklearnOptions& options) {
  const Function function = function_named(metric_str);
  QT_CHECK(
      options.average == "binary" || options.average == "micro" || options.average == "macro" ||
          options.average == "weighted",
      "sklearn_metrics_wrapper: average '{}' is not known; it is binary, micro, macro or weighted",
      options.average);
  const std::string name = options.metric_dict_str.empty() ? metric_str : options.metric_dict_str;
  return {name, [=](const Answers& targets, const Answers& predictions) -> MetricValues {
            check_counts(name, targets.size(), predictions.size());
            double value = 0;
            if (const auto* of_classes = std::get_if<OfClasses>(&function)) {
              value = (*of_classes)(Confusion(targets, predictions), options);
            } else {
              const Numbers found = numbers(predictions, name, "prediction");
              if (const auto* of_numbers = std::get_if<OfNumbers>(&function))
                value = (*of_numbers)(numbers(targets, name, "target"), found);
              else
                value = std::get<OfLabels>(function)(integers(targets, name, "target"), found, {});
            }
            return {{name, options.factor * value}};
          }};
}

}  // namespace quintet::data::metrics
