#pragma once
// What tasks hold for their evaluation: metrics over the answers of a whole set, and the
// postprocessor that makes answers of decoded text.
//
//   const MetricFn squad = metrics::squad();              // t5_metrics.h
//   const MetricValues got = squad(targets, predictions);      // {{"em", 50.0}, {"f1", 72.5}}

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "data/metrics/answer.h"

namespace quintet::data {

class Example;

/// seqio.metrics.Text: Markdown.
struct Text {
  std::string textdata;
  bool operator==(const Text&) const = default;
};
/// seqio.metrics.Histogram: numbers that loggers count in `bins` equal parts (none: 30).
struct Histogram {
  std::vector<double> values;
  std::optional<int64_t> bins = {};
  bool operator==(const Histogram&) const = default;
};

/// What a metric found: mostly a number (seqio.metrics.Scalar).
class MetricValue {
 public:
  MetricValue(double scalar = 0) : value_(scalar) {}                  // NOLINT: implicit
  MetricValue(Text text) : value_(std::move(text)) {}                 // NOLINT: implicit
  MetricValue(Histogram histogram) : value_(std::move(histogram)) {}  // NOLINT: implicit
  /// The number; throws a usage error if it is none.
  operator double() const;  // NOLINT: implicit
  const double* scalar() const { return std::get_if<double>(&value_); }
  const Text* text() const { return std::get_if<Text>(&value_); }
  const Histogram* histogram() const { return std::get_if<Histogram>(&value_); }
  bool operator==(const MetricValue&) const = default;
  template <typename Number>
  requires std::is_arithmetic_v<Number>
  bool operator==(Number number) const { return scalar() != nullptr && *scalar() == number; }

 private:
  std::variant<double, Text, Histogram> value_;
};

/// Name -> value.
using MetricValues = std::map<std::string, MetricValue>;
/// Those that are numbers.
std::map<std::string, double> scalars_of(const MetricValues& metrics);
/// Log-likelihood of each target under the model.
using Scores = std::vector<double>;
/// What a model gave besides its predictions: name -> one value an example.
using AuxValues = std::map<std::string, Answers>;

using PredictMetric =
    std::function<MetricValues(const Answers& targets, const Answers& predictions)>;
using ScoreMetric = std::function<MetricValues(const Answers& targets, const Scores& scores)>;
using PredictWithAuxMetric = std::function<MetricValues(
    const Answers& targets, const Answers& predictions, const AuxValues& aux_values)>;

/// A metric. seqio tells by the names of its parameters what it wants of the model; here its type
/// says so.
struct MetricFn {
  std::string name;
  std::variant<PredictMetric, ScoreMetric, PredictWithAuxMetric> compute;

  bool wants_scores() const { return std::holds_alternative<ScoreMetric>(compute); }
  bool wants_aux_values() const { return std::holds_alternative<PredictWithAuxMetric>(compute); }
  /// For a metric of predictions; throws a usage error for another.
  MetricValues operator()(const Answers& targets, const Answers& predictions) const;
};

/// seqio's postprocess_fn(decoded_model_output, example=, is_target=): makes the answer that
/// metrics compare of the decoded text of a target or of a prediction.
using PostprocessFn =
    std::function<Answer(const Answer& decoded, const Example& example, bool is_target)>;

}  // namespace quintet::data
