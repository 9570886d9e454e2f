#pragma once
// Answers written as JSON, and metrics by the names they have in gin files.

#include <nlohmann/json.hpp>

#include "data/configurables/configurables.h"
#include "data/metrics/metric.h"
#include "data/tasks/gin_types.h"
#include "runtime/base/formats/json.h"
#include "runtime/gin/config.h"

namespace quintet::data::testing {

inline Answer answer_of(const Json& json) {
  if (json.is_string()) return json.as_string();
  if (json.is_bool()) return int64_t{json.as_bool()};
  if (json.is_object()) {
    Fields fields;
    for (const auto& [name, value] : json.members()) fields[name] = answer_of(value);
    return fields;
  }
  if (json.is_array()) {
    Answers items;
    for (const Json& item : json.items()) items.push_back(answer_of(item));
    return items;
  }
  if (json.raw().is_number_integer()) return json.as_int();
  return json.as_double();
}

inline Answers answers_of(const Json& json) { return answer_of(json).items(); }

inline gin::Value gin_value_of(const Json& json) {
  if (json.is_null()) return {};
  if (json.is_string()) return json.as_string();
  if (json.is_bool()) return json.as_bool();
  if (json.is_array()) {
    gin::List items;
    for (const Json& item : json.items()) items.push_back(gin_value_of(item));
    return items;
  }
  if (json.raw().is_number_integer()) return json.as_int();
  return json.as_double();
}

/// Calls configurables of the data folder with arguments written as JSON.
class Configurables {
 public:
  Configurables() {
    register_data(names_);
    config_ = std::make_unique<gin::Config>(names_, gin::Config::Options());
    config_->finalize();
  }
  bool knows(const std::string& name) const { return names_.find(name) != nullptr; }
  /// Arguments that the configurable does not have are notes of the fixture.
  template <typename T>
  T make(const std::string& name, const Json* args = nullptr,
         gin::Callable::Named named = {}) const {
    if (args != nullptr)
      for (const auto& [key, value] : args->members())
        if (names_.find(name)->accepts(key)) named.emplace_back(key, gin_value_of(value));
    return config_->call_as<T>(name, std::move(named));
  }

 private:
  gin::Registry names_;
  std::unique_ptr<gin::Config> config_;
};

}  // namespace quintet::data::testing
