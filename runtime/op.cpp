#include "runtime/op.h"

namespace quintet {
namespace ops::table {
namespace {
constexpr Vjp none = nullptr;
enum Index : size_t {
#define OP(name, rule, vjp) index_of_##name,
#define PHASES(name)
#include "runtime/ops.def"
#include "runtime/phases.def"
#undef OP
#undef PHASES
};

Phases phases_of(std::string_view op) {
#define OP(name, rule, vjp)
#define PHASES(name) \
  if (op == #name) return name##_phases;
#include "runtime/phases.def"
#undef OP
#undef PHASES
  return nullptr;
}
}  // namespace
#define OP(name, rule, vjp)                                                   \
  const Op name{#name, Rule::parse(#name, rule), name##_cpu, index_of_##name, \
                vjp,   phases_of(#name)};
#define PHASES(name)
#include "runtime/ops.def"
#include "runtime/phases.def"
#undef OP
#undef PHASES
}  // namespace ops::table

Kernel kernel_of(const Op& op, const Device& device) {
  return device.is_cpu() ? op.cpu : device.ops()[op.index];
}

std::span<const Op* const> all_ops() {
  static const Op* const list[] = {
#define OP(name, rule, vjp) &ops::table::name,
#define PHASES(name)
#include "runtime/ops.def"
#include "runtime/phases.def"
#undef OP
#undef PHASES
  };
  return list;
}

}  // namespace quintet
