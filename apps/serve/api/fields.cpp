#include "apps/serve/api/fields.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/base/nearest.h"

namespace quintet::serve {
namespace {

/// What a checked access to the field throws is the client's mistake.
template <class Body>
auto reading(const std::string& name, const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    throw ApiError(400, error.what(), name);
  }
}

[[noreturn]] void wrong(const std::string& name, const std::string& why) {
  throw ApiError(400, fmt::format("{}: {}", name, why), name);
}

std::vector<int32_t> ids_of(const Json& list, const std::string& name, int64_t vocab_size) {
  std::vector<int32_t> ids;
  const auto& all = list.raw();
  ids.reserve(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    // Where it lies is for messages: making that text takes longer than all else.
    const int64_t id = all[i].is_number_unsigned() && all[i] < vocab_size
                           ? all[i].get<int64_t>()
                           : reading(name, [&] { return list[i].as_int(); });
    if (id < 0 || id >= vocab_size)
      wrong(name, fmt::format("token {} lies outside the vocabulary of {}", id, vocab_size));
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

// More than all fields there are and the most tokens of a logit_bias.
constexpr size_t kMostKeys = 4096;

Json parsed(const std::string& body, std::function<void()> check_stop) {
  try {
    Json json = Json::parse(body, "body", {.keys = kMostKeys, .check_stop = std::move(check_stop)});
    if (json.is_object()) return json;
  } catch (const Error& error) {
    throw ApiError(400, error.what(), "", "invalid_json");
  }
  throw ApiError(400, "the body must be a JSON object", "", "invalid_json");
}

}  // namespace

Fields::Fields(const std::string& body, std::function<void()> check_stop)
    : body_(parsed(body, std::move(check_stop))) {}

std::optional<Json> Fields::get(const std::string& name) {
  read_.push_back(name);
  if (!body_.has(name)) return std::nullopt;
  Json value = body_[name];
  if (value.is_null()) return std::nullopt;
  return value;
}

int64_t Fields::integer(const std::string& name, int64_t otherwise, int64_t least, int64_t most) {
  const auto value = get(name);
  if (!value) return otherwise;
  const int64_t number = reading(name, [&] { return value->as_int(); });
  if (number < least || number > most)
    wrong(name, fmt::format("must be between {} and {}, found {}", least, most, number));
  return number;
}

double Fields::number(const std::string& name, double otherwise, double least, double most) {
  const auto value = get(name);
  if (!value) return otherwise;
  if (!value->is_number()) wrong(name, "expected a number");
  const double number = value->as_double();
  if (!(number >= least && number <= most))
    wrong(name, fmt::format("must be between {} and {}, found {}", least, most, number));
  return number;
}

bool Fields::boolean(const std::string& name, bool otherwise) {
  const auto value = get(name);
  return value ? reading(name, [&] { return value->as_bool(); }) : otherwise;
}

std::string Fields::string(const std::string& name, const std::string& otherwise) {
  const auto value = get(name);
  return value ? reading(name, [&] { return value->as_string(); }) : otherwise;
}

std::vector<std::string> Fields::strings(const std::string& name, int64_t most) {
  const auto value = get(name);
  if (!value) return {};
  if (value->is_array() && std::ssize(value->raw()) > most)
    wrong(name, fmt::format("{} strings; at most {} are allowed", value->size(), most));
  return reading(name, [&] {
    return value->is_string() ? std::vector{value->as_string()} : value->as_strings();
  });
}

void Fields::refuse(const std::string& name, const nlohmann::ordered_json& neutral,
                    const std::string& why) {
  const auto value = get(name);
  if (value && value->raw() != neutral) wrong(name, why);
}

void Fields::check_all_read() const {
  for (const auto& [name, value] : body_.members())
    if (std::find(read_.begin(), read_.end(), name) == read_.end())
      throw ApiError(400,
                     fmt::format("unknown field '{}'{}; this request takes {}", name,
                                 did_you_mean(name, read_),
                                 fmt::join(std::set(read_.begin(), read_.end()), ", ")),
                     name);
}

std::vector<Text> texts(Fields& fields, const std::string& name, int64_t most, int64_t vocab_size) {
  const auto value = fields.get(name);
  if (!value) wrong(name, "is missing");
  std::vector<Text> all;
  if (value->is_string()) {
    all.push_back({.text = value->as_string(), .ids = {}});
  } else if (!value->is_array()) {
    wrong(name, "expected a string, a list of strings, or lists of token ids");
  } else if (value->size() > 0 && (*value)[0].is_number()) {
    all.push_back({.text = std::nullopt, .ids = ids_of(*value, name, vocab_size)});
  } else {
    if (std::ssize(value->raw()) > most)
      wrong(name, fmt::format("{} of them; at most {} are allowed", value->size(), most));
    for (const Json& item : value->items()) {
      if (item.is_array())
        all.push_back({.text = std::nullopt, .ids = ids_of(item, name, vocab_size)});
      else
        all.push_back({.text = reading(name, [&] { return item.as_string(); }), .ids = {}});
    }
  }
  if (all.empty()) wrong(name, "must not be empty");
  for (const Text& text : all)
    if (text.text ? text.text->empty() : text.ids.empty()) wrong(name, "must not be empty");
  return all;
}

}  // namespace quintet::serve
