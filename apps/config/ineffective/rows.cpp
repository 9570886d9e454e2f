#include "apps/config/ineffective/rows.h"

#include <algorithm>

namespace quintet::ineffective {

using gin::Value;

IsMet is_named(std::string name) {
  return [name = std::move(name)](const Value& value, const gin::Config&) {
    const auto* reference = value.get_if<gin::Reference>();
    return reference != nullptr && reference->target != nullptr && reference->target->name == name;
  };
}

IsMet is_one_of(std::vector<Value> values) {
  return [values = std::move(values)](const Value& value, const gin::Config&) {
    return std::find(values.begin(), values.end(), value) != values.end();
  };
}

IsMet are(std::vector<Value> items) {
  return [items = std::move(items)](const Value& value, const gin::Config&) {
    const std::vector<Value>* found = gin::sequence(value);
    return found != nullptr && *found == items;
  };
}

bool always(const Value&, const gin::Config&) { return true; }

bool is_empty(const Value& value, const gin::Config&) {
  const std::vector<Value>* items = gin::sequence(value);
  return value.is_none() || (items != nullptr && items->empty());
}

}  // namespace quintet::ineffective
