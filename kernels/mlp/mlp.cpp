#include "kernels/mlp/mlp.h"

#include <array>

namespace quintet {
namespace {

struct Named {
  std::string_view name;
  Activation activation;
};
constexpr std::array<Named, 5> kNames{{{"linear", Activation::linear},
                                       {"relu", Activation::relu},
                                       {"gelu", Activation::gelu},
                                       {"silu", Activation::silu},
                                       {"swish", Activation::silu}}};

}  // namespace

Activation activation_from_name(std::string_view name) {
  std::string known;
  for (const Named& n : kNames) {
    if (n.name == name) return n.activation;
    known += (known.empty() ? "" : ", ") + std::string(n.name);
  }
  fail(ExitCode::kUsage, "activation '{}' is not known; use one of {}", name, known);
}

std::string_view name_of(Activation activation) {
  for (const Named& n : kNames)
    if (n.activation == activation) return n.name;
  throw Bug(fmt::format("no activation has the number {}", static_cast<int64_t>(activation)));
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
