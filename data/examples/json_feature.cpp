#include "data/examples/json_feature.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace quintet::data {
namespace {

/// The numbers of nested lists whose lists of a depth are all as long; false for anything else.
bool fill_ndarray(const nlohmann::ordered_json& json, size_t axis, NdArray<double>& array) {
  if (!json.is_array()) {
    if (axis != array.shape.size() || !(json.is_number() || json.is_boolean())) return false;
    array.values.push_back(json.is_boolean() ? json.get<bool>() : json.get<double>());
    return true;
  }
  const auto size = static_cast<int64_t>(json.size());
  if (axis == array.shape.size() && array.values.empty()) array.shape.push_back(size);
  return axis < array.shape.size() && array.shape[axis] == size &&
         std::all_of(json.begin(), json.end(),
                     [&](const auto& item) { return fill_ndarray(item, axis + 1, array); });
}

Tokens ids_of(const nlohmann::ordered_json& json) {
  Tokens ids;
  ids.reserve(json.size());
  for (const auto& item : json)
    ids.push_back(item.is_boolean() ? int32_t{item.get<bool>()} : item.get<int32_t>());
  return ids;
}

bool to_grid(const nlohmann::ordered_json& json, Value& value) {
  NdArray<double> array;
  if (!fill_ndarray(json, 0, array)) return false;
  // "1.0" is a float and "1" is not, as in Python.
  const auto all_below = [&](double limit) {
    return std::ranges::all_of(array.values, [&](double v) { return std::abs(v) < limit; });
  };
  const std::string text = json.dump();
  const bool whole =
      text.find_first_of(".+") == std::string::npos && text.find("e-") == std::string::npos;
  if (whole && !all_below(0x1p31) && all_below(0x1p53))
    value = NdArray<int64_t>{std::move(array.shape), {array.values.begin(), array.values.end()}};
  else if (whole && all_below(0x1p31))
    value = NdArray<int32_t>{std::move(array.shape), {array.values.begin(), array.values.end()}};
  else
    value = std::move(array);
  return true;
}

}  // namespace

bool to_feature(const nlohmann::ordered_json& json, Value& value) {
  if (json.is_string()) {
    value = json.get<std::string>();
  } else if (json.is_boolean()) {
    value = static_cast<int64_t>(json.get<bool>());
  } else if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX}) {
    return false;
  } else if (json.is_number_integer()) {
    value = json.get<int64_t>();
  } else if (json.is_number()) {
    value = json.get<double>();
  } else if (json.is_array()) {
    const auto all = [&](auto&& test) { return std::all_of(json.begin(), json.end(), test); };
    const auto is_id = [](const nlohmann::ordered_json& x) {
      return x.is_boolean() ||
             (x.is_number_integer() && x.get<double>() == static_cast<int32_t>(x.get<int64_t>()));
    };
    const auto is_integer = [](const nlohmann::ordered_json& x) {
      return x.is_number_integer() &&
             (!x.is_number_unsigned() || x.get<uint64_t>() <= uint64_t{INT64_MAX});
    };
    if (all(is_id))
      value = ids_of(json);
    else if (all(is_integer))
      value = json.get<std::vector<int64_t>>();
    else if (all([](const nlohmann::ordered_json& x) { return x.is_number(); }))
      value = json.get<std::vector<double>>();
    else if (all([](const nlohmann::ordered_json& x) { return x.is_string(); }))
      value = json.get<std::vector<std::string>>();
    else
      return to_grid(json, value);
  } else {
    return false;
  }
  return true;
}

}  // namespace quintet::data
