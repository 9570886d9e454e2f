#pragma once
// Non-tensor arguments of an op: a few named numbers.
//
//   Attrs attrs{{"eps", 1e-6}, {"causal", true}};
//   const double eps = attrs.get<double>("eps");

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/check.h"

namespace quintet {

class Attrs {
 public:
  using Value = std::variant<bool, int64_t, double>;
  Attrs() = default;
  /// Names must outlive the Attrs: string literals.
  Attrs(std::initializer_list<std::pair<std::string_view, Value>> items) : items_(items) {}

  void set(std::string_view name, Value value) {
    for (auto& item : items_)
      if (item.first == name) {
        item.second = value;
        return;
      }
    items_.emplace_back(name, value);
  }
  const Value* find(std::string_view name) const {
    for (const auto& item : items_)
      if (item.first == name) return &item.second;
    return nullptr;
  }
  bool has(std::string_view name) const { return find(name) != nullptr; }
  const std::vector<std::pair<std::string_view, Value>>& items() const { return items_; }
  /// The value as T (integers widen to double); throws Bug if absent or of another type.
  template <typename T>
  T get(std::string_view name) const {
    const Value* value = find(name);
    if (value == nullptr) throw Bug(fmt::format("op attribute '{}' is missing", name));
    if constexpr (std::is_same_v<T, double>)
      if (const auto* i = std::get_if<int64_t>(value)) return static_cast<double>(*i);
    const T* typed = std::get_if<T>(value);
    if (typed == nullptr) throw Bug(fmt::format("op attribute '{}' has another type", name));
    return *typed;
  }
  template <typename T>
  T get_or(std::string_view name, T fallback) const {
    return has(name) ? get<T>(name) : fallback;
  }

 private:
  std::vector<std::pair<std::string_view, Value>> items_;
};

}  // namespace quintet
