#include "runtime/base/formats/json.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/base/check.h"
#include "runtime/base/files/read_file.h"

namespace quintet {
namespace {

using Value = nlohmann::ordered_json;
using Object = Value::object_t;
using Member = std::pair<std::string, Value>;

constexpr size_t kEventsBetweenChecks = 4096;
constexpr size_t kQuotedBytes = 100;  // of a key in a message or a path

std::string shortened(std::string_view text) {
  return text.size() <= kQuotedBytes ? std::string(text)
                                     : std::string(text.substr(0, kQuotedBytes)) + "...";
}

/// Builds the document from the parser's events. nlohmann's own builder looks each key up among
/// those before it, which takes quadratic time; here the values of an open object wait, with their
/// keys, at the end of one list, and all its keys are compared at once when it closes.
class Builder : public nlohmann::json_sax<Value> {
 public:
  Builder(const std::string& where, const JsonLimits& limits) : where_(where), limits_(limits) {}

  Value document() { return std::move(waiting_.front().second); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // not in text
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }

  bool key(string_t& key) override {
    QT_CHECK_AS(ExitCode::kData, ++keys_ <= limits_.keys, "{}: more than {} keys", where_,
                limits_.keys);
    key_ = std::move(key);
    return true;
  }

  bool end_object() override {
    const size_t first = close();
    check_unique(first);
    Object members;
    members.reserve(waiting_.size() - first);
    for (size_t i = first; i < waiting_.size(); ++i)
      static_cast<Object::Container&>(members).emplace_back(std::move(waiting_[i].first),
                                                            std::move(waiting_[i].second));
    return replace(first, std::move(members));
  }

  bool end_array() override {
    const size_t first = close();
    Value::array_t items;
    items.reserve(waiting_.size() - first);
    for (size_t i = first; i < waiting_.size(); ++i) items.push_back(std::move(waiting_[i].second));
    return replace(first, std::move(items));
  }

  bool parse_error(size_t, const std::string&, const Value::exception& error) override {
    constexpr size_t kMessageBytes = 300;  // nlohmann quotes all of a string without an end
    fail(ExitCode::kData, "{}: not valid JSON: {}", where_,
         std::string_view(error.what()).substr(0, kMessageBytes));
  }

 private:
  bool add(Value value) {
    count_event();
    waiting_.emplace_back(std::exchange(key_, {}), std::move(value));
    return true;
  }

  /// Its own place, with its key, comes before its values.
  bool open() {
    add(nullptr);
    open_.push_back(waiting_.size());
    QT_CHECK_AS(ExitCode::kData, open_.size() <= limits_.depth, "{}: nested deeper than {}", where_,
                limits_.depth);
    return true;
  }
  size_t close() {
    const size_t first = open_.back();
    open_.pop_back();
    return first;
  }
  bool replace(size_t first, Value value) {
    waiting_.resize(first);
    waiting_.back().second = std::move(value);
    return true;
  }

  void check_unique(size_t first) {
    sorted_.clear();
    for (size_t i = first; i < waiting_.size(); ++i) sorted_.push_back(waiting_[i].first);
    std::sort(sorted_.begin(), sorted_.end());
    const auto twice = std::adjacent_find(sorted_.begin(), sorted_.end());
    QT_CHECK_AS(ExitCode::kData, twice == sorted_.end(), "{}: key '{}' appears twice", where_,
                shortened(*twice));
  }

  void count_event() {
    if (events_++ % kEventsBetweenChecks == 0 && limits_.check_stop) limits_.check_stop();
  }

  const std::string& where_;
  const JsonLimits& limits_;
  std::vector<Member> waiting_;  // values whose object or array has not closed
  std::vector<size_t> open_;     // where the values of each open one begin
  std::vector<std::string_view> sorted_;
  std::string key_;
  size_t keys_ = 0, events_ = 0;
};

}  // namespace

nlohmann::ordered_json json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

void append_member(nlohmann::ordered_json& object, std::string key, nlohmann::ordered_json value) {
  if (object.is_null()) object = Value::object();
  static_cast<Object::Container&>(object.get_ref<Object&>())
      .emplace_back(std::move(key), std::move(value));
}

std::string read_file(const std::filesystem::path& file) {
  return read_file(file, ExitCode::kData);
}

Json Json::parse(std::string_view text, std::string where, const JsonLimits& limits) {
  Builder builder(where, limits);
  Value::sax_parse(text, &builder);
  auto root = std::make_shared<const Value>(builder.document());
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

const Value* Json::find(std::string_view key) const {
  if (!value_->is_object()) return nullptr;
  for (const auto& [name, value] : value_->get_ref<const Object&>())
    if (name == key) return &value;
  return nullptr;
}

Json Json::member(std::string_view key, const Value& value) const {
  return Json(root_, &value, fmt::format("{}.{}", path_, shortened(key)));
}

bool Json::has(std::string_view key) const { return find(key) != nullptr; }

Json Json::operator[](std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) mismatch(fmt::format("an object with member '{}'", key));
  return member(key, *value);
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
  result.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) result.push_back((*this)[i]);
  return result;
}

std::vector<std::pair<std::string, Json>> Json::members() const {
  if (!value_->is_object()) mismatch("an object");
  std::vector<std::pair<std::string, Json>> result;
  result.reserve(value_->size());
  for (const auto& [key, value] : value_->get_ref<const Object&>())
    result.emplace_back(key, member(key, value));
  return result;
}

}  // namespace quintet
