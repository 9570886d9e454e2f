#include "runtime/configurables/optax_configurables.h"
#include "runtime/configurables/shape_expression.h"
#include "runtime/gin/registry/registry.h"
#include "runtime/optim/path_pattern.h"

namespace quintet {
namespace {

/// The value of the first expression that a path begins with a match of.
struct ParamsFn {
  std::vector<std::pair<PathPattern, gin::Value>> rules;
  bool evaluates = false;  // texts are expressions of the shape
  std::string where;

  Evaluated operator()(const std::string& path, const Shape& shape) const {
    for (const auto& [pattern, value] : rules) {
      if (!pattern.found_in(path)) continue;
      const auto* text = value.get_if<std::string>();
      if (evaluates && text != nullptr) return evaluate_shape_expression(*text, shape, where);
      if (value.get_if<gin::Tuple>() != nullptr || value.get_if<gin::List>() != nullptr)
        return gin::as<Shape>(value, {where});
      return gin::as<double>(value, {where});
    }
    fail(ExitCode::kUsage, "{}: no rule matches parameter {}; add one, e.g. '.*' at the end", where,
         path);
  }
};

/// A function of T, a number or a shape.
template <typename T>
std::function<T(const std::string&, const Shape&)> function_of(const gin::Value& value,
                                                               const gin::Where& where) {
  const auto params = value.object_as<ParamsFn>();
  if (params == nullptr)
    gin::conversion_error(
        where, gin::Convert<std::function<T(const std::string&, const Shape&)>>::expected(), value);
  return [params, where](const std::string& path, const Shape& shape) {
    const Evaluated found = (*params)(path, shape);
    const T* typed = std::get_if<T>(&found);
    QT_CHECK(typed != nullptr, "{}: of parameter {} a {} is wanted, found a {}", where.text, path,
             std::is_same_v<T, double> ? "number" : "tuple",
             std::is_same_v<T, double> ? "tuple" : "number");
    return *typed;
  };
}

gin::Value params_fn(const gin::Arguments& a) {
  QT_CHECK(a.get<std::string>("name_sep") == "/", "{}: only '/' is supported",
           a.where("name_sep").text);
  ParamsFn fn{{}, a.get<bool>("eval_str_value"), a.where("assign_map").text};
  for (const auto& [expression, value] :
       a.get<std::vector<std::pair<std::string, gin::Value>>>("assign_map"))
    fn.rules.emplace_back(PathPattern("^(?:" + expression + ")"), value);
  return gin::Value::object(std::make_shared<ParamsFn>(std::move(fn)));
}

}  // namespace

namespace gin {

ParamNumber Convert<ParamNumber>::from(const Value& value, const Where& where) {
  return function_of<double>(value, where);
}
ParamShape Convert<ParamShape>::from(const Value& value, const Where& where) {
  if (value.is_none()) return nullptr;
  return function_of<Shape>(value, where);
}

}  // namespace gin

void register_amos_helper(gin::Registry& registry) {
  registry.add("jestimator.amos_helper.params_fn_from_assign_map",
               {{"assign_map"}, {"name_sep", "/"}, {"eval_str_value", false}}, params_fn);
}

}  // namespace quintet
