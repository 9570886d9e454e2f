#include "data/evaluation/json_values.h"

#include <nlohmann/json.hpp>
#include <span>

#include "data/examples/base64.h"
#include "data/vocabularies/utf8.h"
#include "runtime/base/check.h"
#include "runtime/base/formats/json.h"
#include "runtime/gin/syntax/value.h"

namespace quintet::data {

JsonText text_json(const std::string& text) {
  return find_bad_utf8(text) == std::string::npos ? text : base64(text);
}

namespace {

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

constexpr size_t kMostItems = 32, kShownItems = 5;

std::string repr(int64_t value) { return fmt::format("{}", value); }
std::string repr(int32_t value) { return fmt::format("{}", value); }
std::string repr(double value) { return gin::float_repr(value); }
std::string repr(const std::string& value) { return gin::bytes_repr(value); }

const char* dtype(int32_t) { return "int32"; }
const char* dtype(int64_t) { return "int64"; }
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

/// The values, or unless all are wanted their shape and the first and last of them.
template <typename T>
JsonText array_json(std::span<const int64_t> shape, const std::vector<T>& values, bool whole) {
  size_t at = 0;
  if (whole || values.size() <= kMostItems) return nested(shape, values, at);
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
JsonText array_json(const std::vector<T>& values, bool whole) {
  const auto size = static_cast<int64_t>(values.size());
  return array_json({&size, 1}, values, whole);
}
template <typename T>
JsonText array_json(const NdArray<T>& array, bool whole) {
  return array_json(array.shape, array.values, whole);
}

JsonText to_json(const Value& value, bool whole) {
  return std::visit(
      [whole](const auto& v) -> JsonText {
        if constexpr (requires { ToJson()(v); })
          return ToJson()(v);
        else
          return array_json(v, whole);
      },
      value);
}

}  // namespace

JsonText answer_json(const Answer& answer) { return std::visit(ToJson(), answer.data()); }
JsonText value_json(const Value& value) { return to_json(value, true); }
JsonText summarized_json(const Value& value) { return to_json(value, false); }

}  // namespace quintet::data
