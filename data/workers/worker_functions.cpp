#include "data/workers/worker_functions.h"

#include <nlohmann/json.hpp>

#include "data/evaluation/json_values.h"
#include "data/examples/base64.h"
#include "data/examples/json_feature.h"
#include "data/examples/random.h"
#include "data/vocabularies/utf8.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

constexpr const char* kBytes = "base64";

JsonText feature_json(const Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr || find_bad_utf8(*text) == std::string::npos) return value_json(value);
  return {{kBytes, base64(*text)}};
}

JsonText example_json(const Example& example) {
  JsonText json = JsonText::object();
  for (const auto& [name, value] : example.items()) json[name] = feature_json(value);
  return json;
}

Value feature_of(const Json& json) {
  Value value;
  if (json.is_object() && json.size() == 1 && json.has(kBytes) && json[kBytes].is_string()) {
    const auto bytes = from_base64(json[kBytes].as_string());
    QT_CHECK_AS(ExitCode::kData, bytes.has_value(), "{}: expected base64", json.path());
    return *bytes;
  }
  QT_CHECK_AS(ExitCode::kData, to_feature(json.raw(), value),
              "{}: a feature is a text, a number, a list of them, or a grid of numbers",
              json.path());
  return value;
}

Example example_of(const Json& json) {
  QT_CHECK_AS(ExitCode::kData, json.is_object(), "{}: expected an object of features", json.path());
  Example example;
  for (const auto& [name, value] : json.members()) example.set(name, feature_of(value));
  return example;
}

Answer answer_of(const nlohmann::ordered_json& json) {
  if (json.is_string()) return json.get<std::string>();
  if (json.is_boolean()) return int64_t{json.get<bool>()};
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_array()) {
    Answers items;
    for (const auto& item : json) items.push_back(answer_of(item));
    return items;
  }
  QT_CHECK_AS(ExitCode::kData, json.is_object(),
              "answer: expected texts, numbers, lists or objects of them, found {}", json.dump());
  Fields fields;
  for (const auto& [name, value] : json.items()) fields.emplace(name, answer_of(value));
  return fields;
}

std::string line_of(const JsonText& request) {
  return request.dump(-1, ' ', false, JsonText::error_handler_t::replace);
}

class ProcessPreprocessor final : public Preprocessor {
 public:
  explicit ProcessPreprocessor(WorkersPtr workers) : workers_(std::move(workers)) {}
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override {
    JsonText lengths = JsonText::object();
    for (const auto& [name, length] : context.sequence_length.value_or(Lengths{}))
      lengths[name] = length;
    return flat_map_stream(
        std::move(input), [workers = workers_, lengths](Example&& in, std::vector<Example>& out) {
          // Python's random.seed and NumPy's take 32 bits.
          const uint64_t seed = Random(take_key(in)).bits() >> 32;
          const Json answer = workers->ask(line_of(
              {{"example", example_json(in)}, {"sequence_length", lengths}, {"seed", seed}}));
          for (const Json& example : answer["examples"].items()) out.push_back(example_of(example));
        });
  }

 private:
  WorkersPtr workers_;
};

class ProcessReader final : public Reader {
 public:
  ProcessReader(WorkersPtr workers, std::string split)
      : workers_(std::move(workers)), split_(std::move(split)) {
    size_ = workers_->ask(line_of({{"split", split_}}))["size"].as_int();
    QT_CHECK_AS(ExitCode::kData, size_ >= 0, "split {}: size: {} examples", split_, size_);
  }
  std::optional<int64_t> size() const override { return size_; }
  void read(int64_t i, Example& out) const override {
    const Json answer = workers_->ask(line_of({{"split", split_}, {"index", i}}));
    out.items() = example_of(answer["example"]).items();
  }
  std::string where(int64_t index) const override {
    return fmt::format("example {} of split {}", index, split_);
  }

 private:
  WorkersPtr workers_;
  std::string split_;
  int64_t size_ = 0;
};

class ProcessSource final : public DataSource {
 public:
  ProcessSource(WorkersPtr workers, std::vector<std::string> splits)
      : workers_(std::move(workers)), splits_(std::move(splits)) {}
  std::vector<std::string> splits() const override { return splits_; }
  std::shared_ptr<const Reader> open(const std::string& split) const override {
    QT_CHECK_AS(ExitCode::kData, std::find(splits_.begin(), splits_.end(), split) != splits_.end(),
                "no split '{}'; there are {}", split, fmt::join(splits_, ", "));
    return std::make_shared<ProcessReader>(workers_, split);
  }

 private:
  WorkersPtr workers_;
  std::vector<std::string> splits_;
};

JsonText answers_json(const Answers& answers) {
  JsonText json = JsonText::array();
  for (const Answer& answer : answers) json.push_back(answer_json(answer));
  return json;
}

}  // namespace

PreprocessorPtr process_preprocessor(WorkersPtr workers) {
  return std::make_shared<ProcessPreprocessor>(std::move(workers));
}

PostprocessFn process_postprocessor(WorkersPtr workers) {
  return [workers = std::move(workers)](const Answer& decoded, const Example& example,
                                        bool is_target) -> Answer {
    const Json answer = workers->ask(line_of({{"output", answer_json(decoded)},
                                              {"example", example_json(example)},
                                              {"is_target", is_target}}));
    return answer_of(answer["output"].raw());
  };
}

MetricFn process_metric(WorkersPtr workers, std::string name) {
  const PredictMetric compute = [workers = std::move(workers)](const Answers& targets,
                                                               const Answers& predictions) {
    const Json answer = workers->ask(
        line_of({{"targets", answers_json(targets)}, {"predictions", answers_json(predictions)}}));
    MetricValues values;
    for (const auto& [metric, value] : answer["metrics"].members())
      values[metric] =
          value.is_string() ? MetricValue(Text{value.as_string()}) : MetricValue(value.as_double());
    return values;
  };
  return {std::move(name), compute};
}

DataSourcePtr process_source(WorkersPtr workers, std::vector<std::string> splits) {
  return std::make_shared<ProcessSource>(std::move(workers), std::move(splits));
}

}  // namespace quintet::data
