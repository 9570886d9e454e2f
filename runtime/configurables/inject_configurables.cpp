#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/configurables/optax_configurables.h"
#include "runtime/gin/config.h"
#include "runtime/optim/optax/inject_hyperparams.h"
#include "runtime/optim/optax/transformation.h"

namespace quintet {
namespace {

using gin::Arguments;
using gin::Value;

/// A call of a configurable that goes on after its configuration is gone, with other numbers each time.
struct KeptCall {
  gin::Configurable target;
  std::map<std::string, Arguments::Item> items;
  std::vector<std::string> numbers;  // the parameters that take them
  gin::Where where;                  // inner_factory

  TransformationPtr operator()(std::span<const double> values) const {
    auto given = items;
    for (size_t i = 0; i < numbers.size(); ++i) {
      Value& value = given[numbers[i]].value;
      if (value.get_if<int64_t>() != nullptr)
        value = static_cast<int64_t>(values[i]);
      else
        value = values[i];
    }
    return gin::as<TransformationPtr>(target.function(Arguments(nullptr, &target, given)), where);
  }
};

/// As the state keeps it: int32 or float32.
double checked_number(double number, bool integer, const std::string& where) {
  const double most = integer ? 0x1p31 - 1 : static_cast<double>(std::numeric_limits<float>::max());
  QT_CHECK(std::abs(number) <= most,
           "{}: {} is no number of {}, which the state of optax.inject_hyperparams keeps", where,
           number, integer ? "32 bits" : "float32");
  return number;
}

/// What optax.inject_hyperparams gives is a function there, which gin cannot call; here it is the transformation that the
/// function makes of inner_factory's own bindings.
Value injected(const Arguments& a) {
  QT_CHECK(a.get<DType>("hyperparam_dtype") == DType::f32,
           "{}: hyperparameters are float32 here; bind None", a.where("hyperparam_dtype").text);
  const auto factory = a.get<gin::Callable>("inner_factory");
  const std::string place = a.where("inner_factory").text;
  QT_CHECK(factory.name() != a.target().name,
           "{}: {} of itself; bind the transformation whose numbers are meant", place,
           factory.name());
  const Arguments inner = a.config().arguments(factory.scoped_name());
  std::vector<std::string> fixed;
  const Value static_args = a.value("static_args");
  if (const auto* one = static_args.get_if<std::string>())
    fixed = {*one};
  else
    fixed = a.get<std::vector<std::string>>("static_args");
  for (const std::string& name : fixed)
    QT_CHECK(factory.target().find(name) != nullptr, "{}: {} has no parameter '{}'",
             a.where("static_args").text, factory.name(), name);
  const auto call =
      std::make_shared<KeptCall>(KeptCall{factory.target(), {}, {}, a.where("inner_factory")});
  InjectOptions options{{}, {}, place};
  for (const gin::Param& param : factory.target().params) {
    if (!param.required && !param.default_value && !inner.has(param.name)) continue;
    const Value value = inner.value(param.name);
    call->items[param.name] = {value, inner.where(param.name)};
    if (std::ranges::find(fixed, param.name) != fixed.end()) continue;
    const bool integer = value.get_if<int64_t>() != nullptr;
    const auto schedule = value.object_as<Schedule>();
    if (!integer && value.get_if<double>() == nullptr && schedule == nullptr) continue;
    call->numbers.push_back(param.name);
    Hyperparam& h = options.hyperparams.emplace_back(Hyperparam{param.name, 0.0, integer});
    if (schedule != nullptr)
      h.value = *schedule;
    else
      h.value = checked_number(gin::as<double>(value, inner.where(param.name)), integer,
                               inner.where(param.name).text);
  }
  options.make = [call](std::span<const double> values) { return (*call)(values); };
  return gin::to_value(inject_hyperparams(std::move(options)));
}

}  // namespace

void register_inject_hyperparams(gin::Registry& registry) {
  registry.add("optax.inject_hyperparams",
               {{"inner_factory"}, {"static_args", gin::Tuple{}}, {"hyperparam_dtype", nullptr}},
               injected);
}

}  // namespace quintet
