#pragma once
// Conversions between gin values and C++ types.
//
//   auto lengths = as<std::map<std::string, int64_t>>(value, where);
//   Value v = to_value(std::vector<int64_t>{1, 2});            // [1, 2]
//
// bool, integers, double/float, std::string, std::optional, std::vector, std::array, std::pair,
// std::tuple, std::map<std::string, T>, vector of pairs (an ordered dict), Value itself, Callable,
// std::function, std::shared_ptr<T>, and any copyable class that a configurable returned by value.
// To let an enum be written as a string, specialise Convert for it.

#include <array>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/gin/syntax/value.h"

namespace quintet::gin {

/// What is being converted, for messages: "gin/base.gin:12: t5x.utils.DatasetConfig.batch_size".
struct Where {
  std::string text;
  Where item(size_t i) const { return {text + "[" + std::to_string(i) + "]"}; }
  Where key(const std::string& k) const { return {text + "[" + k + "]"}; }
};
/// "WHERE: expected EXPECTED, found FOUND"; exit code 2.
[[noreturn]] void conversion_error(const Where& where, const std::string& expected,
                                   const Value& found);

template <typename T, typename = void>
struct Convert;

/// The usage error that is being handled, with the value's place before it unless it has one.
[[noreturn]] void rethrow_at(const Where& where);

template <typename T>
T as(const Value& value, const Where& where) {
  try {
    return Convert<std::remove_cvref_t<T>>::from(value, where);
  } catch (const quintet::Error&) {
    rethrow_at(where);
  }
}
/// Literals become literals, everything else an Object.
template <typename T>
Value to_value(T&& value) {
  return Convert<std::remove_cvref_t<T>>::to(std::forward<T>(value));
}

/// Any class: what a configurable returned by value (or as a shared_ptr to it), copied.
template <typename T, typename>
struct Convert {
  static_assert(!std::is_pointer_v<T>, "pass objects through gin as std::shared_ptr");
  static std::string expected() { return type_name(typeid(T)); }
  static T from(const Value& value, const Where& where) {
    if (auto object = value.object_as<T>()) return *object;
    conversion_error(where, expected(), value);
  }
  static Value to(T value) { return Value::object(std::make_shared<T>(std::move(value))); }
};
template <>
struct Convert<Value> {
  static std::string expected() { return "a value"; }
  static Value from(const Value& value, const Where&) { return value; }
  static Value to(Value value) { return value; }
};
template <>
struct Convert<bool> {
  static std::string expected() { return "bool"; }
  static bool from(const Value& value, const Where& where);
  static Value to(bool value) { return value; }
};
int64_t int_from(const Value& value, const Where& where, int64_t low, int64_t high);
template <typename T>
struct Convert<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> {
  static_assert(sizeof(T) <= 8);
  static std::string expected() { return "int"; }
  static T from(const Value& value, const Where& where) {
    constexpr int64_t kLow =
        std::is_unsigned_v<T> ? 0 : static_cast<int64_t>(std::numeric_limits<T>::min());
    constexpr int64_t kHigh = sizeof(T) == 8 ? std::numeric_limits<int64_t>::max()
                                             : static_cast<int64_t>(std::numeric_limits<T>::max());
    return static_cast<T>(int_from(value, where, kLow, kHigh));
  }
  static Value to(T value) { return static_cast<int64_t>(value); }
};
double double_from(const Value& value, const Where& where);
template <typename T>
struct Convert<T, std::enable_if_t<std::is_floating_point_v<T>>> {
  static std::string expected() { return "float"; }
  static T from(const Value& value, const Where& where) {
    return static_cast<T>(double_from(value, where));
  }
  static Value to(T value) { return static_cast<double>(value); }
};
template <>
struct Convert<std::string> {
  static std::string expected() { return "str"; }
  static std::string from(const Value& value, const Where& where);
  static Value to(std::string value) { return value; }
};
template <>
struct Convert<Callable> {
  static std::string expected() { return "a reference to a configurable, @name without ()"; }
  static Callable from(const Value& value, const Where& where);
  static Value to(Callable value) { return value; }
};
template <typename T>
struct Convert<std::optional<T>> {
  static std::string expected() { return Convert<T>::expected() + " or None"; }
  static std::optional<T> from(const Value& value, const Where& where) {
    if (value.is_none()) return std::nullopt;
    return as<T>(value, where);
  }
  static Value to(std::optional<T> value) { return value ? to_value(std::move(*value)) : Value(); }
};
template <typename T>
struct Convert<std::shared_ptr<T>> {
  static std::string expected() { return type_name(typeid(T)); }
  /// None becomes a null pointer.
  static std::shared_ptr<T> from(const Value& value, const Where& where) {
    if (value.is_none()) return nullptr;
    if (auto object = value.object_as<T>()) return object;
    conversion_error(where, expected(), value);
  }
  static Value to(std::shared_ptr<T> value) {
    return value == nullptr ? Value() : Value::object(std::move(value));
  }
};

template <typename T>
constexpr bool kNoneIsNull = false;
template <typename T>
constexpr bool kNoneIsNull<std::shared_ptr<T>> = true;
template <typename R, typename... A>
constexpr bool kNoneIsNull<std::function<R(A...)>> = true;

/// As `as`, of what must be there: None is neither an object nor a function.
template <typename T>
T as_required(const Value& value, const Where& where) {
  if (kNoneIsNull<T> && value.is_none()) conversion_error(where, Convert<T>::expected(), value);
  return as<T>(value, where);
}

/// The items of a list or tuple, or nullptr.
const std::vector<Value>* sequence(const Value& value);

template <typename T>
struct Convert<std::vector<T>> {
  static std::string expected() { return "list of " + Convert<T>::expected(); }
  static std::vector<T> from(const Value& value, const Where& where) {
    if (auto whole = value.object_as<std::vector<T>>()) return *whole;
    const std::vector<Value>* items = sequence(value);
    if (items == nullptr) conversion_error(where, expected(), value);
    std::vector<T> out;
    out.reserve(items->size());
    for (size_t i = 0; i < items->size(); ++i)
      out.push_back(as_required<T>((*items)[i], where.item(i)));
    return out;
  }
  static Value to(std::vector<T> value) {
    List out;
    for (auto&& item : value) out.push_back(to_value(T(std::move(item))));
    return out;
  }
};
/// A dict whose order matters.
template <typename T>
struct Convert<std::vector<std::pair<std::string, T>>> {
  using Pairs = std::vector<std::pair<std::string, T>>;
  static std::string expected() {
    return "dict of str to " + Convert<T>::expected() + ", or pairs";
  }
  static Pairs from(const Value& value, const Where& where) {
    if (auto whole = value.object_as<Pairs>()) return *whole;
    Pairs out;
    if (const Dict* dict = value.get_if<Dict>()) {
      for (const auto& [k, v] : dict->items)
        out.emplace_back(as<std::string>(k, where), as<T>(v, where.key(k.repr())));
      return out;
    }
    const std::vector<Value>* items = sequence(value);
    if (items == nullptr) conversion_error(where, expected(), value);
    for (size_t i = 0; i < items->size(); ++i)
      out.push_back(as<std::pair<std::string, T>>((*items)[i], where.item(i)));
    return out;
  }
  static Value to(Pairs value) {
    List out;
    for (auto& item : value) out.push_back(to_value(std::move(item)));
    return out;
  }
};
template <typename T>
struct Convert<std::map<std::string, T>> {
  static std::string expected() { return "dict of str to " + Convert<T>::expected(); }
  static std::map<std::string, T> from(const Value& value, const Where& where) {
    if (auto whole = value.object_as<std::map<std::string, T>>()) return *whole;
    const Dict* dict = value.get_if<Dict>();
    if (dict == nullptr) conversion_error(where, expected(), value);
    std::map<std::string, T> out;
    for (const auto& [k, v] : dict->items)
      out.insert_or_assign(as<std::string>(k, where), as<T>(v, where.key(k.repr())));
    return out;
  }
  static Value to(std::map<std::string, T> value) {
    Dict out;
    for (auto& [k, v] : value) out.items.emplace_back(k, to_value(std::move(v)));
    return out;
  }
};

template <typename... T>
struct Convert<std::tuple<T...>> {
  static std::string expected() { return "tuple of " + std::to_string(sizeof...(T)); }
  static std::tuple<T...> from(const Value& value, const Where& where) {
    if (auto whole = value.object_as<std::tuple<T...>>()) return *whole;
    const std::vector<Value>* items = sequence(value);
    if (items == nullptr || items->size() != sizeof...(T))
      conversion_error(where, expected(), value);
    return build(*items, where, std::index_sequence_for<T...>());
  }
  static Value to(std::tuple<T...> value) {
    return std::apply([](auto&&... v) { return tuple_of({to_value(std::move(v))...}); },
                      std::move(value));
  }

 private:
  template <size_t... i>
  static std::tuple<T...> build(const std::vector<Value>& items, const Where& where,
                                std::index_sequence<i...>) {
    return {as<T>(items[i], where.item(i))...};
  }
};
template <typename A, typename B>
struct Convert<std::pair<A, B>> {
  static std::string expected() { return "pair"; }
  static std::pair<A, B> from(const Value& value, const Where& where) {
    auto [a, b] = as<std::tuple<A, B>>(value, where);
    return {std::move(a), std::move(b)};
  }
  static Value to(std::pair<A, B> value) {
    return tuple_of({to_value(std::move(value.first)), to_value(std::move(value.second))});
  }
};
template <typename T, size_t n>
struct Convert<std::array<T, n>> {
  static std::string expected() { return "tuple of " + std::to_string(n); }
  static std::array<T, n> from(const Value& value, const Where& where) {
    const std::vector<T> items = as<std::vector<T>>(value, where);
    if (items.size() != n) conversion_error(where, expected(), value);
    std::array<T, n> out{};
    std::copy(items.begin(), items.end(), out.begin());
    return out;
  }
  static Value to(std::array<T, n> value) {
    List out;
    for (auto& item : value) out.push_back(to_value(std::move(item)));
    return tuple_of(std::move(out));
  }
};
/// A C++ function object that a configurable returned, or @name: called with these as its first
/// arguments.
template <typename R, typename... A>
struct Convert<std::function<R(A...)>> {
  using F = std::function<R(A...)>;
  static std::string expected() { return "a function, @name"; }
  static F from(const Value& value, const Where& where) {
    if (value.is_none()) return nullptr;
    if (auto whole = value.object_as<F>()) return *whole;
    const Callable* callable = value.get_if<Callable>();
    if (callable == nullptr) conversion_error(where, expected(), value);
    return [f = *callable, where](A... arguments) -> R {
      Value result = f({to_value(std::forward<A>(arguments))...});
      if constexpr (!std::is_void_v<R>) return as<R>(result, Where{"result of " + f.name()});
    };
  }
  static Value to(F value) { return Value::object(std::make_shared<F>(std::move(value))); }
};

}  // namespace quintet::gin
