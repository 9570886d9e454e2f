#include "runtime/gin/registry/convert.h"

#include <cmath>

#include "runtime/gin/syntax/error.h"

namespace quintet::gin {

void rethrow_at(const Where& where) {
  try {
    throw;
  } catch (const ConfigError&) {
    throw;
  } catch (const Error& error) {
    std::string_view message = error.what();
    if (error.code() != ExitCode::kUsage || message.starts_with(where.text)) throw;
    const std::string parameter = where.text.substr(where.text.rfind('.') + 1) + ": ";
    if (message.starts_with(parameter)) message.remove_prefix(parameter.size());
    throw ConfigError({}, -1, fmt::format("{}: {}", where.text, message));
  }
}

void conversion_error(const Where& where, const std::string& expected, const Value& found) {
  throw ConfigError(
      {}, -1, fmt::format("{}: expected {}, found {}", where.text, expected, found.describe()));
}

bool Convert<bool>::from(const Value& value, const Where& where) {
  if (const bool* b = value.get_if<bool>()) return *b;
  conversion_error(where, "bool (True or False)", value);
}

int64_t int_from(const Value& value, const Where& where, int64_t low, int64_t high) {
  if (const int64_t* i = value.get_if<int64_t>()) {
    if (*i >= low && *i <= high) return *i;
    conversion_error(where, fmt::format("int from {} to {}", low, high), value);
  }
  if (const double* d = value.get_if<double>();
      d != nullptr && *d == std::trunc(*d) && std::abs(*d) < 9e15)
    conversion_error(where, fmt::format("int (write {})", static_cast<int64_t>(*d)), value);
  conversion_error(where, value.get_if<BigInt>() != nullptr ? "int of 64 bits" : "int", value);
}

double double_from(const Value& value, const Where& where) {
  if (const double* d = value.get_if<double>()) return *d;
  if (const int64_t* i = value.get_if<int64_t>()) return static_cast<double>(*i);
  if (const BigInt* i = value.get_if<BigInt>()) return std::strtod(i->digits.c_str(), nullptr);
  conversion_error(where, "float", value);
}

std::string Convert<std::string>::from(const Value& value, const Where& where) {
  if (const std::string* text = value.get_if<std::string>()) return *text;
  conversion_error(where, "str", value);
}

Callable Convert<Callable>::from(const Value& value, const Where& where) {
  if (const Callable* callable = value.get_if<Callable>()) return *callable;
  conversion_error(where, expected(), value);
}

const std::vector<Value>* sequence(const Value& value) {
  if (const List* list = value.get_if<List>()) return list;
  if (const Tuple* tuple = value.get_if<Tuple>()) return &tuple->items;
  return nullptr;
}

}  // namespace quintet::gin
