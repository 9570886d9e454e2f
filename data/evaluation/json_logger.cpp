#include "data/evaluation/json_logger.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/evaluation/json_values.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/json.h"

namespace quintet::data {
namespace {

JsonText example_json(const Example& example) {
  JsonText json = JsonText::object();
  for (const auto& [name, value] : example.items()) json[name] = summarized_json(value);
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

void append_metrics(const std::filesystem::path& file, int64_t step, const MetricValues& metrics) {
  std::string text;
  if (std::filesystem::exists(file))
    for (const Json& record : Json::read_lines(file))
      if (record["step"].as_int() < step) text += record.raw().dump() + "\n";
  JsonText record = {{"step", step}};
  for (const auto& [name, value] : metrics) {
    if (const auto* found = value.get_if<Text>())
      record[name] = text_json(found->textdata);
    else if (const auto* generic = value.get_if<Generic>())
      record[name] = value_json(generic->tensor);
    else if (value.scalar() != nullptr)
      record[name] = json_number(value);  // the others have no form here, as in seqio
  }
  atomic_write_file(file, text + record.dump() + "\n");
}

}  // namespace

void JsonLogger::write(int64_t step, const TaskOutputs& outputs) const {
  make_folders(log_dir_);
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
