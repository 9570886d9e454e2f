#pragma once
// The names a gin file may use. Each folder has one function `register_<folder>(gin::Registry&)`
// that adds its configurables under their full Python paths, so that imports (`from t5x import
// utils`), aliases and suffixes (`utils.DatasetConfig`) all find them.
//
//   r.add_struct<T5Config>("t5x.examples.t5.network.T5Config")
//       .required("vocab_size", &T5Config::vocab_size)
//       .arg("emb_dim", &T5Config::emb_dim);                 // default: the member's initialiser
//   r.add_function("t5x.partitioning.standard_logical_axis_rules", standard_logical_axis_rules,
//                  {{"activation_partitioning_dims", 1}, {"parameter_partitioning_dims", 1}});
//   r.add("t5x.train.train", {"model", {"random_seed", nullptr}},
//         [](const gin::Arguments& a) -> gin::Value {
//           return run(a.get<std::shared_ptr<Model>>("model"));
//         });
//
// A registry is a value that the application builds; there is no global one.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/gin/registry/convert.h"
#include "runtime/gin/syntax/value.h"

namespace quintet::gin {

/// One parameter of a configurable: {"name"} must be bound or passed; {"name", default} need not.
/// The name "**" stands for any further parameters (Python's **kwargs).
struct Param {
  std::string name;
  bool required = true;
  std::optional<Value>
      default_value;  // nullopt and not required: a default that has no literal form

  Param(const char* n) : name(n) { required = name != "**"; }  // NOLINT: {"model", {"steps", 1}}
  Param(std::string n) : name(std::move(n)) { required = name != "**"; }  // NOLINT
  Param(std::string n, Value d)
      : name(std::move(n)), required(false), default_value(std::move(d)) {}
  Param(std::string n, bool must, std::optional<Value> d)
      : name(std::move(n)), required(must), default_value(std::move(d)) {}
};

/// The evaluated arguments of one call.
class Arguments {
 public:
  struct Item {
    Value value;
    Where where;
  };
  Arguments(const Config* config, const Configurable* target, std::map<std::string, Item> items)
      : config_(config), target_(target), items_(std::move(items)) {}

  /// Bound in a gin file or passed by the caller (a default does not count).
  bool has(const std::string& name) const { return items_.contains(name); }
  /// The value converted, or else the default; throws if there is neither, and if it is None for an object or a function
  /// whose parameter has no default.
  template <typename T>
  T get(const std::string& name) const {
    return is_required(name) ? as_required<T>(value(name), where(name))
                             : as<T>(value(name), where(name));
  }
  /// The value, or else `otherwise` (ignores the registered default).
  template <typename T>
  T get_or(const std::string& name, T otherwise) const {
    return has(name) ? get<T>(name) : otherwise;
  }
  Value value(const std::string& name) const;
  /// "file.gin:3: full.name.parameter", for messages.
  Where where(const std::string& name) const;
  std::vector<std::string> names()
      const;  // those of has(), sorted; with "**" the only way to see them all
  /// Throws Bug for those of a call that has none.
  const Config& config() const;
  const Configurable& target() const { return *target_; }

 private:
  bool is_required(const std::string& name) const;
  const Config* config_;
  const Configurable* target_;
  std::map<std::string, Item> items_;
};

using Function = std::function<Value(const Arguments&)>;

class Configurable {
 public:
  std::string name;  // full, e.g. "t5x.utils.DatasetConfig"
  std::vector<Param> params;
  Function
      function;  // empty: has parameters but cannot be called from gin (see Registry::add_method)
  bool is_method = false;
  const Param* find(const std::string& parameter) const;
  bool accepts(const std::string& parameter) const;  // find(), or "**" is there
};

/// Parameters of a struct, one after the other; see Registry::add_struct.
template <typename T>
class StructParams {
 public:
  using Setter = std::function<void(T&, const Value&, const Where&)>;
  StructParams(Configurable* c,
               std::shared_ptr<std::vector<std::pair<std::string, Setter>>> setters)
      : c_(c), setters_(std::move(setters)) {}

  template <typename M, typename Base>
  StructParams& required(const std::string& name, M Base::*member) {
    return add(Param(name), [member](T& object, const Value& v, const Where& w) {
      object.*member = as_required<M>(v, w);
    });
  }
  template <typename M, typename Base>
  StructParams& arg(const std::string& name, M Base::*member) {
    return add(Param(name, false, literal(to_value(T().*member))), setter(member));
  }
  /// A parameter with a conversion of its own.
  StructParams& arg_with(const std::string& name, Value default_value, Setter set) {
    return add(Param(name, std::move(default_value)), std::move(set));
  }
  /// A parameter of the original that has no effect here; binding it is not an error.
  StructParams& accepted(const std::string& name, Value default_value = {}) {
    return add(Param(name, std::move(default_value)), [](T&, const Value&, const Where&) {});
  }
  /// Called once all are set. Throws usage errors that begin with the parameter's name and a colon; the binding's place
  /// comes before it.
  StructParams& check(std::function<void(const T&)> valid) {
    setters_->emplace_back(
        "", [valid = std::move(valid)](T& object, const Value&, const Where&) { valid(object); });
    return *this;
  }

 private:
  template <typename M, typename Base>
  static Setter setter(M Base::*member) {
    return [member](T& object, const Value& v, const Where& w) { object.*member = as<M>(v, w); };
  }
  static std::optional<Value> literal(Value v) {
    return v.get_if<Object>() != nullptr ? std::nullopt : std::optional<Value>(std::move(v));
  }
  StructParams& add(Param p, Setter set) {
    setters_->emplace_back(p.name, std::move(set));
    c_->params.push_back(std::move(p));
    return *this;
  }
  Configurable* c_;
  std::shared_ptr<std::vector<std::pair<std::string, Setter>>> setters_;
};

class Registry {
 public:
  Registry();  // knows gin.macro, gin.singleton, gin.REQUIRED and t5x.gin_utils' helpers
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  /// The low-level form. Throws if the name is taken.
  Configurable& add(const std::string& name, std::vector<Param> params, Function function);
  /// Parameters without a function, for methods such as
  /// "t5x.models.EncoderDecoderModel.predict_batch_with_aux": the object reads them with
  /// Config::arguments(name) when the method runs.
  Configurable& add_method(const std::string& name, std::vector<Param> params);
  /// A second path to the same configurable, e.g. "seqio.Feature" for
  /// "seqio.dataset_providers.Feature".
  void add_alias(const std::string& alias, const std::string& name);
  /// Calling it gives a T (by value) with the bound members set.
  template <typename T>
  StructParams<T> add_struct(const std::string& name);
  /// fn: a function, lambda or std::function whose parameters have these names, in order.
  template <typename F>
  Configurable& add_function(const std::string& name, F fn, std::vector<Param> params);
  /// %module.NAME in gin files (any suffix of the name will do).
  void add_constant(const std::string& name, Value value);
  /// A Python module that gin files import for its side effects; `hook` (may be empty) runs at each
  /// import. Modules that contain a configurable, and their parents, are known without this.
  void add_module(const std::string& name, std::function<void()> hook = {});

  /// By full name or alias; nullptr if unknown.
  const Configurable* find(const std::string& full_name) const;
  /// All configurables that a dotted suffix names (an exact name gives just that one).
  std::vector<const Configurable*> match(const std::string& suffix) const;
  const Value* find_constant(const std::string& full_name) const;
  std::vector<std::string> match_constants(const std::string& suffix) const;
  bool has_module(const std::string& name) const;
  void run_module_hook(const std::string& name) const;
  /// All full names and aliases, sorted.
  std::vector<std::string> names() const;
  std::vector<std::string> constant_names() const;

 private:
  std::deque<Configurable> configurables_;  // never moves
  std::map<std::string, const Configurable*> by_name_;
  std::map<std::string, Value> constants_;
  std::map<std::string, std::function<void()>> modules_;
};

template <typename T>
StructParams<T> Registry::add_struct(const std::string& name) {
  auto setters =
      std::make_shared<std::vector<std::pair<std::string, typename StructParams<T>::Setter>>>();
  Configurable& c = add(name, {}, [setters](const Arguments& a) -> Value {
    T object{};
    for (const auto& [parameter, set] : *setters)
      if (!parameter.empty() && a.has(parameter))
        set(object, a.value(parameter), a.where(parameter));
    for (const auto& [parameter, check] : *setters)
      if (parameter.empty()) check(object, {}, {});
    return Value::object(std::make_shared<T>(std::move(object)), a.target().name);
  });
  return {&c, std::move(setters)};
}

namespace internal {
template <typename R, typename... A>
std::function<R(A...)> as_function(std::function<R(A...)> f) {
  return f;
}
template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <typename T>
T argument(const Arguments& a, const Param& p) {
  if (!a.has(p.name) && !p.default_value)
    if constexpr (IsOptional<T>::value) return std::nullopt;
  return a.get<T>(p.name);
}
template <typename R, typename... A, size_t... i>
Value invoke(const std::function<R(A...)>& f, const Arguments& a, const std::vector<Param>& p,
             std::index_sequence<i...>) {
  if constexpr (std::is_void_v<R>) {
    f(argument<std::remove_cvref_t<A>>(a, p[i])...);
    return {};
  } else {
    Value result = to_value(f(argument<std::remove_cvref_t<A>>(a, p[i])...));
    if (Object* object = std::get_if<Object>(&result.data());
        object != nullptr && object->maker.empty())
      object->maker = a.target().name;
    return result;
  }
}
void check_parameter_count(const std::string& name, size_t given, size_t wanted);

template <typename R, typename... A>
Configurable& add_function(Registry& r, const std::string& name, std::function<R(A...)> f,
                           std::vector<Param> params) {
  check_parameter_count(name, params.size(), sizeof...(A));
  size_t i = 0;
  ((IsOptional<std::remove_cvref_t<A>>::value && params[i].required && !params[i].default_value
        ? void(params[i] = Param(params[i].name, Value()))
        : void(),
    ++i),
   ...);
  return r.add(name, params, [f = std::move(f), params](const Arguments& a) {
    return invoke(f, a, params, std::index_sequence_for<A...>());
  });
}
}  // namespace internal

template <typename F>
Configurable& Registry::add_function(const std::string& name, F fn, std::vector<Param> params) {
  return internal::add_function(*this, name, std::function(std::move(fn)), std::move(params));
}

}  // namespace quintet::gin
