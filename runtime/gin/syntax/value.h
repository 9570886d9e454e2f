#pragma once
// A gin value: what stands right of '=' in a gin file, and what a configurable returns. Values are
// Python's literals, references (@scope/name, @name()), macros (%NAME), and, once a reference has
// been called, any C++ object.
//
//   Value v = list_of({1, 2.5, "three"});
//   v.repr();                                    // [1, 2.5, 'three']
//   as<std::vector<int64_t>>(v, where);          // convert.h: an error names `where`
//
// Knows nothing of files, registries or scopes. See parser.h, registry.h, config.h.

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

namespace quintet::gin {

class Configurable;
class Config;
class Value;

/// Where something was written: a file, or a flag such as `--gin.BATCH_SIZE=8` (line 1).
struct Location {
  std::string file;
  int line = 0;
  std::string str() const;  // "file:line", or "" if unknown
  bool operator==(const Location&) const = default;
};

struct None {
  bool operator==(const None&) const = default;
};
struct BigInt {  // an integer literal outside int64: decimal digits, perhaps with a minus sign
  std::string digits;
  bool operator==(const BigInt&) const = default;
};
struct Complex {
  double real = 0, imag = 0;
  bool operator==(const Complex&) const = default;
};
struct Bytes {
  std::string data;
  bool operator==(const Bytes&) const = default;
};
using List = std::vector<Value>;
struct Tuple {
  std::vector<Value> items;
};
/// A dict keeps the order in which it was written; a repeated key keeps its place and the last
/// value.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  const Value* find(std::string_view key) const;  // nullptr if there is no such string key
  void set(Value key, Value value);
};
/// @scope/selector or @scope/selector(). `target` is filled in when a Config takes the binding
/// over.
struct Reference {
  std::vector<std::string> scopes;
  std::string selector;
  bool call = false;
  const Configurable* target = nullptr;
  std::string name() const;  // "scope/selector" as written
};
/// %scope/NAME; also constants such as %gin.REQUIRED.
struct Macro {
  std::string name;
  bool operator==(const Macro&) const = default;
};
/// An uncalled reference after evaluation: a configurable whose other arguments come from the
/// bindings at the moment of the call. Valid as long as its Config.
class Callable {
 public:
  using Named = std::vector<std::pair<std::string, Value>>;
  Callable(const Config* config, const Configurable* target, std::vector<std::string> scopes)
      : config_(config), target_(target), scopes_(std::move(scopes)) {}
  /// Calls it; arguments given here win over bindings. Errors are those of Config::call.
  Value operator()(std::vector<Value> positional, Named named) const;
  Value operator()(std::vector<Value> positional) const;
  Value operator()() const;
  /// What a call without arguments returned first in the scope that is active (gin.singleton).
  Value singleton() const;
  const std::string& name() const;  // full registered name, e.g. "seqio.Evaluator"
  std::string scoped_name() const;  // "scope/seqio.Evaluator", for Config::arguments
  const Configurable& target() const { return *target_; }
  const std::vector<std::string>& scopes() const { return scopes_; }

 private:
  const Config* config_;
  const Configurable* target_;
  std::vector<std::string> scopes_;
};
/// A C++ object of any type, shared. `maker` is the configurable that returned it (for messages).
struct Object {
  std::shared_ptr<void> data;
  const std::type_info* type = nullptr;
  void (*throw_pointer)(void*) = nullptr;  // throws a T*, so that a catch clause finds base classes
  std::string maker;
};

class Value {
 public:
  using Data = std::variant<None, bool, int64_t, BigInt, double, Complex, std::string, Bytes, List,
                            Tuple, Dict, Reference, Macro, Callable, Object>;

  // What the variant's members make is compiled once, in value.cpp.
  Value();  // None
  ~Value();
  Value(const Value&);
  Value(Value&&) noexcept;
  Value& operator=(const Value&);
  Value& operator=(Value&&) noexcept;
  Value(None) : Value() {}  // NOLINT: literals convert, so that defaults read as in Python
  Value(std::nullptr_t) : Value() {}  // NOLINT
  Value(bool v);                      // NOLINT
  Value(int v);                       // NOLINT
  Value(int64_t v);                   // NOLINT
  Value(double v);                    // NOLINT
  Value(const char* v);               // NOLINT
  Value(std::string v);               // NOLINT
  Value(std::string_view v);          // NOLINT
  Value(BigInt v);                    // NOLINT
  Value(Complex v);                   // NOLINT
  Value(Bytes v);                     // NOLINT
  Value(List v);                      // NOLINT
  Value(Tuple v);                     // NOLINT
  Value(Dict v);                      // NOLINT
  Value(Reference v);                 // NOLINT
  Value(Macro v);                     // NOLINT
  Value(Callable v);                  // NOLINT
  Value(Object v);                    // NOLINT

  /// Wraps a shared object; get it back as shared_ptr<T>, shared_ptr<const T> or of a public base
  /// of T.
  template <typename T>
  static Value object(std::shared_ptr<T> pointer, std::string maker = {}) {
    using Plain = std::remove_const_t<T>;
    return Object{std::const_pointer_cast<Plain>(std::move(pointer)), &typeid(Plain),
                  [](void* p) { throw static_cast<Plain*>(p); }, std::move(maker)};
  }

  template <typename T>
  const T* get_if() const {
    return std::get_if<T>(&data_);
  }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  const Data& data() const { return data_; }
  Data& data() { return data_; }

  /// The object as a T (or public base T), sharing ownership; nullptr if it is none.
  template <typename T>
  std::shared_ptr<T> object_as() const {
    const Object* o = get_if<Object>();
    if (o == nullptr || o->data == nullptr) return nullptr;
    if (*o->type == typeid(T)) return std::static_pointer_cast<std::remove_const_t<T>>(o->data);
    try {
      o->throw_pointer(o->data.get());
    } catch (T* p) {
      return std::shared_ptr<T>(o->data, p);
    } catch (...) {
    }
    return nullptr;
  }

  /// As Python's repr() prints it; references as @x, macros as %X.
  std::string repr() const;
  /// For messages: the type and a short form, e.g. "str 'abc'" or "object made by seqio.Feature".
  std::string describe() const;

  /// Same type and same content (1 and 1.0 differ, NaN equals NaN; objects by identity).
  bool operator==(const Value& other) const;

 private:
  Data data_;
};

/// Equal for values that are the same key of a Python dict (1, 1.0 and True); empty if it cannot be
/// one.
std::string dict_key(const Value& value);
std::string type_name(const std::type_info& type);  // demangled, without the namespace quintet::
std::string float_repr(double value);               // Python's repr: 0.1, 1e-05, inf
std::string str_repr(std::string_view text);        // with quotes and escapes
std::string bytes_repr(std::string_view data);

inline Value list_of(std::vector<Value> items) { return Value(List(std::move(items))); }
inline Value tuple_of(std::vector<Value> items) { return Value(Tuple{std::move(items)}); }
inline Value dict_of(std::vector<std::pair<Value, Value>> items) {
  return Value(Dict{std::move(items)});
}

}  // namespace quintet::gin
