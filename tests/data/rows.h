#pragma once
// Examples written as JSON rows, for tests that show rows in and rows out.
//
//   StreamPtr in = rows(Json::parse(R"([{"targets": [5, 6, 1]}])"));
//   EXPECT_EQ(rows_text(*stream), R"([{"targets":[5,6,1]}])");

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data/examples/dataset.h"
#include "data/examples/preprocessor.h"
#include "runtime/base/check.h"
#include "runtime/base/formats/json.h"

namespace quintet::data::testing {

using nlohmann::ordered_json;

template <typename T>
NdArray<T> ndarray_of(const ordered_json& json) {
  NdArray<T> array;
  for (const ordered_json* axis = &json; axis->is_array(); axis = &axis->front())
    array.shape.push_back(static_cast<int64_t>(axis->size()));
  const ordered_json flat = json.flatten();
  for (const auto& value : flat) array.values.push_back(value.get<T>());
  return array;
}

template <typename T>
ordered_json json_of(const NdArray<T>& array, size_t axis, size_t& at) {
  if (axis == array.shape.size()) return array.values[at++];
  ordered_json list = ordered_json::array();
  for (int64_t i = 0; i < array.shape[axis]; ++i) list.push_back(json_of(array, axis + 1, at));
  return list;
}

inline Value value_of(const ordered_json& json) {
  if (json.is_string()) return json.get<std::string>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_array() && !json.empty() && json.front().is_string())
    return json.get<std::vector<std::string>>();
  if (json.is_array() && !json.empty() && json.front().is_array()) {
    const ordered_json flat = json.flatten();
    const bool floats = !flat.empty() && flat.front().is_number_float();
    return floats ? Value(ndarray_of<double>(json)) : Value(ndarray_of<int32_t>(json));
  }
  if (json.is_array() && !json.empty() && json.front().is_number_float())
    return json.get<std::vector<double>>();
  if (json.is_array()) return json.get<Tokens>();
  throw Bug("no feature has the form of " + json.dump());
}

struct ToJson {
  ordered_json operator()(const auto& v) const { return ordered_json(v); }
  template <typename T>
  ordered_json operator()(const NdArray<T>& v) const {
    size_t at = 0;
    return json_of(v, 0, at);
  }
};
inline ordered_json json_of(const Value& value) { return std::visit(ToJson{}, value); }

inline Example example_of(const ordered_json& json) {
  Example example;
  // A row that is only a line of text is what a text source gives.
  if (json.is_string()) {
    example.set("text", json.get<std::string>());
    return example;
  }
  // Nested features have names with slashes, as in TFDS files: {"answers": {"text": ..}}.
  for (const auto& [name, value] : json.items())
    if (value.is_object())
      for (const auto& [inner, item] : value.items())
        example.set(name + "/" + inner, value_of(item));
    else
      example.set(name, value_of(value));
  return example;
}

/// Features in name order: their order is not part of what seqio promises.
inline nlohmann::json json_of(const Example& example) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, value] : example.items()) json[name] = json_of(value);
  return json;
}

inline std::vector<Example> examples_of(const ordered_json& rows) {
  std::vector<Example> examples;
  int64_t index = 0;
  for (const auto& row : rows) {
    examples.push_back(example_of(row));
    examples.back().index = index;
    examples.back().key = split_at(key_from_seed(7), static_cast<uint64_t>(index++));
  }
  return examples;
}

inline StreamPtr rows(const Json& json) { return stream_of(examples_of(json.raw())); }
inline StreamPtr rows(const std::string& text) { return rows(Json::parse(text)); }

inline nlohmann::json collect_json(Stream& stream) {
  nlohmann::json all = nlohmann::json::array();
  for (const Example& example : collect(stream)) all.push_back(json_of(example));
  return all;
}
/// What is left of a stream, as JSON without spaces.
inline std::string rows_text(Stream& stream) { return collect_json(stream).dump(); }

inline Lengths lengths_of(const Json& json) {
  Lengths lengths;
  for (const auto& [name, value] : json.members()) lengths.emplace_back(name, value.as_int());
  return lengths;
}

/// Output features over ids below `size`, with EOS 1: {"inputs": true} says add_eos.
inline Features features_of(const Json& add_eos, VocabularyPtr vocabulary) {
  Features features;
  for (const auto& [name, value] : add_eos.members())
    features.emplace_back(name, Feature{vocabulary, value.as_bool()});
  return features;
}

}  // namespace quintet::data::testing
