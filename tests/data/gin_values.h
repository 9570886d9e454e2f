#pragma once
// Arguments of fixtures as gin values.

#include <nlohmann/json.hpp>

#include "runtime/gin/syntax/value.h"

namespace quintet::data::testing {

inline gin::Value gin_value(const nlohmann::ordered_json& json) {
  if (json.is_null()) return nullptr;
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    gin::List list;
    for (const auto& item : json) list.push_back(gin_value(item));
    return list;
  }
  gin::Dict dict;
  for (const auto& [key, value] : json.items()) dict.set(key, gin_value(value));
  return dict;
}

}  // namespace quintet::data::testing
