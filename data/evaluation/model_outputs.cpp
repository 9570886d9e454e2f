#include "data/evaluation/model_outputs.h"

#include <nlohmann/json.hpp>

namespace quintet::data {
namespace {

using nlohmann::json;

json to_json(const Answer& answer);

struct OutputJson {
  json operator()(const Fields& fields) const {
    json object = json::object();
    for (const auto& [name, value] : fields) object[name] = to_json(value);
    return object;
  }
  json operator()(const Answers& items) const {
    json array = json::array();
    for (const Answer& item : items) array.push_back(to_json(item));
    return array;
  }
  json operator()(const auto& single) const { return single; }
};

json to_json(const Answer& answer) { return std::visit(OutputJson(), answer.data()); }

Answer to_answer(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_array()) {
    Answers items;
    for (const json& item : value) items.push_back(to_answer(item));
    return items;
  }
  Fields fields;
  for (const auto& [name, item] : value.items()) fields[name] = to_answer(item);
  return fields;
}

/// MessagePack: numbers keep their bits, texts need not be UTF-8.
std::string to_bytes(const ModelOutputs& outputs) {
  json predictions = json::array();
  for (const Predictions& batch : outputs.predictions)
    predictions.push_back(
        {batch.tokens, to_json(Fields(batch.aux_values.begin(), batch.aux_values.end()))});
  const std::vector<uint8_t> bytes =
      json::to_msgpack({{"predictions", std::move(predictions)}, {"scores", outputs.scores}});
  return {bytes.begin(), bytes.end()};
}

ModelOutputs from_bytes(const std::string& bytes) {
  const json object = json::from_msgpack(bytes);
  ModelOutputs outputs;
  outputs.scores = object.at("scores").get<std::vector<Scores>>();
  for (const json& batch : object.at("predictions")) {
    Predictions& added = outputs.predictions.emplace_back();
    added.tokens = batch.at(0).get<std::vector<Tokens>>();
    for (const auto& [name, values] : batch.at(1).items())
      added.aux_values[name] = to_answer(values).items();
  }
  return outputs;
}

/// Element i of rank r's list becomes element i * size + r.
template <typename T>
std::vector<T> dealt_back(std::vector<ModelOutputs>& all, std::vector<T> ModelOutputs::*list) {
  std::vector<T> joined;
  for (size_t i = 0;; ++i)
    for (ModelOutputs& part : all) {
      if (i >= (part.*list).size()) return joined;
      joined.push_back(std::move((part.*list)[i]));
    }
}

}  // namespace

ModelOutputs gather(ModelOutputs own, const Peers& peers) {
  if (peers.size == 1) return own;
  std::vector<ModelOutputs> all;
  for (const std::string& bytes : peers.gather(to_bytes(own))) all.push_back(from_bytes(bytes));
  return {dealt_back(all, &ModelOutputs::predictions), dealt_back(all, &ModelOutputs::scores)};
}

}  // namespace quintet::data
