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

#include "data/examples/preprocessor.h"
#include "data/metrics/answer.h"

namespace quintet::data {

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
/// seqio.metrics.Image: pictures of one size, encoded as PNG.
struct Image {
  int64_t width = 0, height = 0;
  std::vector<std::string> pictures;
  int64_t max_outputs = 3;
  bool operator==(const Image&) const = default;
};
/// seqio.metrics.Audio: clips, encoded as WAV.
struct Audio {
  std::vector<std::string> clips;
  int64_t max_outputs = 3;
  bool operator==(const Audio&) const = default;
};
/// seqio.metrics.Generic: numbers for a plugin of TensorBoard, with what the plugin says of them.
struct Generic {
  NdArray<double> tensor;
  std::string plugin_name, plugin_content;
  bool operator==(const Generic&) const = default;
};

/// What a metric found: mostly a number (seqio.metrics.Scalar).
class MetricValue {
 public:
  MetricValue(double scalar = 0) : value_(scalar) {}  // NOLINT: implicit
  template <typename T>
  requires(!std::is_arithmetic_v<T>) MetricValue(T value)
      : value_(std::move(value)) {}  // NOLINT: implicit
  /// The number; throws a usage error if it is none.
  operator double() const;  // NOLINT: implicit
  const double* scalar() const { return get_if<double>(); }
  /// The value if it is a T, else null.
  template <typename T>
  const T* get_if() const {
    return std::get_if<T>(&value_);
  }
  /// "number", "text", "histogram", ...
  const char* kind() const;
  bool operator==(const MetricValue&) const = default;
  template <typename Number>
  requires std::is_arithmetic_v<Number>
  bool operator==(Number number) const { return scalar() != nullptr && *scalar() == number; }

 private:
  std::variant<double, Text, Histogram, Image, Audio, Generic> value_;
};

/// Name -> value.
using MetricValues = std::map<std::string, MetricValue>;
/// Those that are numbers.
std::map<std::string, double> scalars_of(const MetricValues& metrics);
/// Log-likelihood of each target under the model.
using Scores = std::vector<double>;
/// What a model gave besides its predictions: name -> one value an example.
using AuxValues = std::map<std::string, Answers>;

/// seqio.metrics.ModelOutputType: what a metric wants of the model.
enum class ModelOutputType { prediction, score, prediction_with_aux };  // as MetricFn::compute

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

  ModelOutputType model_output_type() const {
    return static_cast<ModelOutputType>(compute.index());
  }
  /// For a metric of predictions; throws a usage error for another.
  MetricValues operator()(const Answers& targets, const Answers& predictions) const;
  /// For any: it takes what it wants.
  MetricValues operator()(const Answers& targets, const Answers& predictions, const Scores& scores,
                          const AuxValues& aux_values) const;
};

/// An evaluation set and what a model made of it; what was not asked for is empty.
struct ModelOutput {
  const std::vector<Example>& inputs;
  const Features& features;  // the task's
  const std::string& target_field_name;
  const std::vector<Tokens>& tokens;
  const std::vector<std::string>& outputs;  // tokens as text
  const Scores& scores;
  const AuxValues& aux_values;
  int64_t target_length;  // of the rows of targets that the model was given
};

/// seqio.metrics.Metric: from_model_output(..).compute(). It postprocesses what it compares itself.
struct MetricObject {
  std::string name;
  ModelOutputType model_output_type;
  std::function<MetricValues(const ModelOutput&)> compute;
};

/// seqio's postprocess_fn(decoded_model_output, example=, is_target=): makes the answer that
/// metrics compare of the decoded text of a target or of a prediction.
using PostprocessFn =
    std::function<Answer(const Answer& decoded, const Example& example, bool is_target)>;

}  // namespace quintet::data
