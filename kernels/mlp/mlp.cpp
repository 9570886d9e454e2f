#include "kernels/mlp/mlp.h"

#include <array>

namespace quintet {
namespace {

struct Named {
  std::string_view name;
  Activation activation;
};
constexpr std::array<Named, 6> kNames{{{"linear", Activation::linear},
                                       {"relu", Activation::relu},
                                       {"gelu", Activation::gelu},
                                       {"silu", Activation::silu},
                                       {"swish", Activation::silu},
                                       {"gelu_erf", Activation::gelu_erf}}};

Activation activation_of(const char* op, int64_t number) {
  if (number < 0 || number > static_cast<int64_t>(Activation::gelu_erf))
    throw Bug(fmt::format("{}: no activation has the number {}", op, number));
  return static_cast<Activation>(number);
}

}  // namespace

Activation activation_from_name(std::string_view name, std::string_view what) {
  std::string known;
  for (const Named& n : kNames) {
    if (n.name == name) return n.activation;
    known += (known.empty() ? "" : ", ") + std::string(n.name);
  }
  fail(ExitCode::kUsage, "{}: '{}' is not known; use one of {}", what, name, known);
}

std::string_view name_of(Activation activation) {
  for (const Named& n : kNames)
    if (n.activation == activation) return n.name;
  throw Bug(fmt::format("no activation has the number {}", static_cast<int64_t>(activation)));
}

Gate Gate::of(const char* op, const std::vector<std::string>& names, bool gated) {
  QT_CHECK(names.size() == (gated ? 2u : 1u), "{}: mlp_activations has {} names for {} matrices",
           op, names.size(), gated ? 2 : 1);
  return {activation_from_name(names.front()),
          gated ? activation_from_name(names[1]) : Activation::linear};
}
Gate Gate::of(const char* op, const Attrs& attrs) {
  return {activation_of(op, attrs.get<int64_t>("act0")),
          activation_of(op, attrs.get_or<int64_t>("act1", 0))};
}
void Gate::add_to(Attrs& attrs) const {
  attrs.set("act0", static_cast<int64_t>(act0));
  attrs.set("act1", static_cast<int64_t>(act1));
}

View hidden_units(const View& x, const View& wi_0) {
  View y = x;
  y.pointer = nullptr;
  const auto last = static_cast<size_t>(x.rank - 1);
  y.sizes[last] = wi_0.sizes[1];
  y.origin[last] = wi_0.origin[1];
  y.global[last] = wi_0.global[1];
  return y;
}

}  // namespace quintet
