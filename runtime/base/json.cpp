#include "runtime/base/json.h"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include "runtime/base/check.h"

namespace quintet {
namespace {

using Value = nlohmann::ordered_json;
constexpr int kMaxDepth = 64;

/// Refuses what nlohmann accepts silently: duplicate keys and nesting without end.
Value parse_checked(std::string_view text, const std::string& where) {
  std::vector<std::set<std::string>> keys;
  auto callback = [&](int depth, Value::parse_event_t event, Value& parsed) {
    QT_CHECK_AS(ExitCode::kData, depth <= kMaxDepth, "{}: nested deeper than {}", where, kMaxDepth);
    if (event == Value::parse_event_t::object_start) keys.emplace_back();
    if (event == Value::parse_event_t::object_end) keys.pop_back();
    if (event == Value::parse_event_t::key) {
      const std::string key = parsed.get<std::string>();
      QT_CHECK_AS(ExitCode::kData, keys.back().insert(key).second, "{}: key '{}' appears twice",
                  where, key);
    }
    return true;
  };
  try {
    return Value::parse(text, callback);
  } catch (const nlohmann::json::exception& e) {
    fail(ExitCode::kData, "{}: not valid JSON: {}", where, e.what());
  }
}

}  // namespace

nlohmann::ordered_json json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

std::string read_file(const std::filesystem::path& file) {
  QT_CHECK_AS(ExitCode::kData, !std::filesystem::is_directory(file),
              "{}: is a directory, expected a file", file.string());
  std::ifstream in(file, std::ios::binary);
  QT_CHECK_AS(ExitCode::kData, in.good(), "{}: cannot open: {}", file.string(),
              std::strerror(errno));
  // Copying from an empty buffer would count as a failure.
  if (in.peek() == std::ifstream::traits_type::eof() && !in.bad()) return "";
  std::ostringstream text;
  text << in.rdbuf();
  QT_CHECK_AS(ExitCode::kData, !in.bad() && !text.fail(), "{}: cannot read: {}", file.string(),
              std::strerror(errno));
  return std::move(text).str();
}

Json Json::parse(std::string_view text, std::string where) {
  auto root = std::make_shared<const Value>(parse_checked(text, where));
  const Value* value = root.get();
  return Json(std::move(root), value, std::move(where));
}

Json Json::read(const std::filesystem::path& file) { return parse(read_file(file), file.string()); }

std::vector<Json> Json::read_lines(const std::filesystem::path& file) {
  std::istringstream in(read_file(file));
  std::vector<Json> lines;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number)
    if (!line.empty()) lines.push_back(parse(line, fmt::format("{}:{}", file.string(), number)));
  return lines;
}

bool Json::is_null() const { return value_->is_null(); }
bool Json::is_string() const { return value_->is_string(); }
bool Json::is_number() const { return value_->is_number(); }
bool Json::is_bool() const { return value_->is_boolean(); }
bool Json::is_array() const { return value_->is_array(); }
bool Json::is_object() const { return value_->is_object(); }

void Json::mismatch(std::string_view expected) const {
  fail(ExitCode::kData, "{}: expected {}, found {}", path_, expected,
       value_->dump(-1, ' ', false, Value::error_handler_t::replace).substr(0, 80));
}

bool Json::has(std::string_view key) const {
  return value_->is_object() && value_->contains(std::string(key));
}

Json Json::operator[](std::string_view key) const {
  if (!has(key)) mismatch(fmt::format("an object with member '{}'", key));
  return Json(root_, &value_->at(std::string(key)), fmt::format("{}.{}", path_, key));
}

Json Json::operator[](size_t index) const {
  if (!value_->is_array() || index >= value_->size())
    mismatch(fmt::format("an array with more than {} elements", index));
  return Json(root_, &value_->at(index), fmt::format("{}[{}]", path_, index));
}

size_t Json::size() const {
  if (!value_->is_array() && !value_->is_object()) mismatch("an array or object");
  return value_->size();
}

int64_t Json::as_int() const {
  if (!value_->is_number_integer()) mismatch("an integer");
  if (value_->is_number_unsigned() &&
      value_->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    mismatch("an integer below 2^63");
  return value_->get<int64_t>();
}

double Json::as_double() const {
  if (value_->is_number()) return value_->get<double>();
  if (value_->is_string()) {
    const auto text = value_->get<std::string>();
    if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
    if (text == "Infinity") return std::numeric_limits<double>::infinity();
    if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  }
  mismatch("a number");
}

bool Json::as_bool() const {
  if (!value_->is_boolean()) mismatch("true or false");
  return value_->get<bool>();
}

std::string Json::as_string() const {
  if (!value_->is_string()) mismatch("a string");
  return value_->get<std::string>();
}

std::vector<int64_t> Json::as_ints() const {
  std::vector<int64_t> result;
  for (const Json& item : items()) result.push_back(item.as_int());
  return result;
}

std::vector<double> Json::as_doubles() const {
  std::vector<double> result;
  for (const Json& item : items()) result.push_back(item.as_double());
  return result;
}

std::vector<std::string> Json::as_strings() const {
  std::vector<std::string> result;
  for (const Json& item : items()) result.push_back(item.as_string());
  return result;
}

std::vector<Json> Json::items() const {
  if (!value_->is_array()) mismatch("an array");
  std::vector<Json> result;
  for (size_t i = 0; i < value_->size(); ++i) result.push_back((*this)[i]);
  return result;
}

std::vector<std::pair<std::string, Json>> Json::members() const {
  if (!value_->is_object()) mismatch("an object");
  std::vector<std::pair<std::string, Json>> result;
  for (const auto& [key, value] : value_->items()) result.emplace_back(key, (*this)[key]);
  return result;
}

}  // namespace quintet
