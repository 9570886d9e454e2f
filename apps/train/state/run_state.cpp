#include "apps/train/state/run_state.h"

#include <nlohmann/json.hpp>

#include "runtime/base/formats/json.h"

namespace quintet {

std::string to_json(const RunState& state) {
  nlohmann::ordered_json window = nlohmann::ordered_json::object();
  for (const auto& [name, metric] : state.window)
    window[name] = {json_number(metric.total), json_number(metric.count), metric.per_step};
  nlohmann::ordered_json actions = nlohmann::ordered_json::object();
  for (const auto& [name, values] : state.actions)
    for (const auto& [key, value] : values) actions[name][key] = json_number(value);
  nlohmann::ordered_json json = {{"step", state.step},
                                 {"first_step", state.first_step},
                                 {"skipped_updates", state.skipped_updates},
                                 {"skipped_in_a_row", state.skipped_in_a_row},
                                 {"evaluated_step", state.evaluated_step},
                                 {"metrics_bytes", state.metrics_bytes},
                                 {"seed", state.seed},
                                 {"data_position", state.data_position},
                                 {"window", window},
                                 {"actions", actions},
                                 {"vocabularies", to_json(state.vocabularies)}};
  if (state.lora) json["lora"] = nlohmann::ordered_json::parse(to_json(*state.lora));
  return json.dump();
}

RunState run_state_from_json(const std::string& text, const std::string& where) {
  const Json json = Json::parse(text, where);
  QT_CHECK_AS(ExitCode::kData, !json.has("quantized"),
              "{}: is a quantized model's, which cannot be trained; name the run that it was made "
              "from",
              where);
  RunState state;
  state.step = json["step"].as_int();
  state.first_step = json["first_step"].as_int();
  state.skipped_updates = json["skipped_updates"].as_int();
  state.skipped_in_a_row = json["skipped_in_a_row"].as_int();
  state.evaluated_step = json["evaluated_step"].as_int();
  state.metrics_bytes = json["metrics_bytes"].as_int();
  state.seed = json["seed"].as_int();
  state.data_position = json["data_position"].as_string();
  for (const auto& [name, metric] : json["window"].members())
    state.window[name] = {metric[size_t{0}].as_double(), metric[size_t{1}].as_double(),
                          metric[size_t{2}].as_bool()};
  if (json.has("actions"))  // checkpoints made before actions had a state have none
    for (const auto& [name, values] : json["actions"].members())
      for (const auto& [key, value] : values.members())
        state.actions[name][key] = value.as_double();
  if (json.has("vocabularies"))  // nor those made before vocabularies were recorded
    state.vocabularies = data::vocabulary_records_from(json["vocabularies"]);
  state.lora = adapter_record(text, where);
  return state;
}

}  // namespace quintet
