#include "data/evaluation/json_logger.h"

#include <algorithm>

#include "data/base64.h"
#include "data/vocabularies/utf8.h"
#include "runtime/base/atomic_file.h"
#include "runtime/base/json.h"
#include "runtime/gin/value.h"

namespace quintet::data {
namespace {

using JsonText = nlohmann::ordered_json;

JsonText text_json(const std::string& text) {
  return find_bad_utf8(text) == std::string::npos ? text : base64(text);
}

struct ToJson {
  JsonText operator()(const std::string& text) const { return text_json(text); }
  JsonText operator()(int64_t number) const { return number; }
  JsonText operator()(double number) const { return json_number(number); }
  JsonText operator()(const Answers& items) const {
    JsonText json = JsonText::array();
    for (const Answer& item : items) json.push_back(std::visit(*this, item.data()));
    return json;
  }
  JsonText operator()(const Fields& fields) const {
    JsonText json = JsonText::object();
    for (const auto& [name, value] : fields) json[name] = std::visit(*this, value.data());
    return json;
  }
};

JsonText answer_json(const Answer& answer) { return std::visit(ToJson(), answer.data()); }

constexpr size_t kMostItems = 32, kShownItems = 5;

std::string repr(int32_t value) { return fmt::format("{}", value); }
std::string repr(double value) { return gin::float_repr(value); }
std::string repr(const std::string& value) { return gin::bytes_repr(value); }

const char* dtype(int32_t) { return "int32"; }
const char* dtype(double) { return "float32"; }
const char* dtype(const std::string&) { return "object"; }

template <typename T>
JsonText item_json(const T& value) {
  if constexpr (std::is_same_v<T, int32_t>)
    return value;
  else
    return ToJson()(value);
}

/// Row-major values of this shape as nested lists; `at` moves past them.
template <typename T>
JsonText nested(std::span<const int64_t> shape, const std::vector<T>& values, size_t& at) {
  if (shape.empty()) return item_json(values[at++]);
  JsonText json = JsonText::array();
  for (int64_t i = 0; i < shape[0]; ++i) json.push_back(nested(shape.subspan(1), values, at));
  return json;
}

/// The values, or their shape and the first and last of them.
template <typename T>
JsonText array_json(std::span<const int64_t> shape, const std::vector<T>& values) {
  size_t at = 0;
  if (values.size() <= kMostItems) return nested(shape, values, at);
  std::vector<std::string> first, last;
  for (size_t i = 0; i < kShownItems; ++i) {
    first.push_back(repr(values[i]));
    last.push_back(repr(values[values.size() - kShownItems + i]));
  }
  return fmt::format("ndarray(shape=({}{}), dtype={}); summary: {} ... {}", fmt::join(shape, ", "),
                     shape.size() == 1 ? "," : "", dtype(values[0]), fmt::join(first, ", "),
                     fmt::join(last, ", "));
}
template <typename T>
JsonText array_json(const std::vector<T>& values) {
  const auto size = static_cast<int64_t>(values.size());
  return array_json({&size, 1}, values);
}
template <typename T>
JsonText array_json(const Grid<T>& grid) {
  return array_json(grid.shape, grid.values);
}

JsonText example_json(const Example& example) {
  JsonText json = JsonText::object();
  for (const auto& [name, value] : example.items())
    json[name] = std::visit(
        [](const auto& v) -> JsonText {
          if constexpr (requires { ToJson()(v); })
            return ToJson()(v);
          else
            return array_json(v);
        },
        value);
  return json;
}

JsonText result_json(const TaskOutputs& outputs, size_t i) {
  JsonText json = {{"input", example_json((*outputs.examples)[i])},
                   {"target", answer_json((*outputs.targets)[i])}};
  if (!outputs.scores.empty()) json["score"] = json_number(outputs.scores[i]);
  if (!outputs.predictions.empty()) {
    json["output"] = text_json(outputs.outputs[i]);
    json["prediction"] = answer_json(outputs.predictions[i]);
  }
  for (const auto& [name, values] : outputs.aux_values)
    json["aux_" + name] = answer_json(values[i]);
  return json;
}

void append_metrics(const std::filesystem::path& file, int64_t step, const Metrics& metrics) {
  std::string text;
  if (std::filesystem::exists(file))
    for (const Json& record : Json::read_lines(file))
      if (record["step"].as_int() < step) text += record.raw().dump() + "\n";
  JsonText record = {{"step", step}};
  for (const auto& [name, value] : metrics) {
    if (const Text* found = value.text())
      record[name] = text_json(found->textdata);
    else if (value.scalar() != nullptr)
      record[name] = json_number(value);  // histograms have no form here, as in seqio
  }
  atomic_write_file(file, text + record.dump() + "\n");
}

}  // namespace

void JsonLogger::write(int64_t step, const TaskOutputs& outputs) const {
  std::filesystem::create_directories(log_dir_);
  std::string name = outputs.task->name();
  std::replace(name.begin(), name.end(), '/', '_');
  if (!outputs.metrics.empty())
    append_metrics(log_dir_ / (name + "-metrics.jsonl"), step, outputs.metrics);
  auto count = static_cast<int64_t>(outputs.examples->size());
  count = std::min(count, write_n_results_.value_or(count));
  if (count == 0) return;
  std::string text;
  for (int64_t i = 0; i < count; ++i)
    text += result_json(outputs, static_cast<size_t>(i)).dump() + "\n";
  atomic_write_file(log_dir_ / fmt::format("{}-{:06}.jsonl", name, step), text);
}

}  // namespace quintet::data
