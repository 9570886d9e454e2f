#include "runtime/op.h"

namespace quintet {
namespace ops::table {
namespace {
constexpr Vjp none = nullptr;
enum Index : size_t {
#define OP(name, rule, vjp) index_of_##name,
#include "runtime/ops.def"
#undef OP
};
}  // namespace
#define OP(name, rule, vjp) \
  const Op name{#name, Rule::parse(#name, rule), name##_cpu, index_of_##name, vjp};
#include "runtime/ops.def"
#undef OP
}  // namespace ops::table

Kernel kernel_of(const Op& op, const Device& device) {
  return device.is_cpu() ? op.cpu : device.ops()[op.index];
}

std::span<const Op* const> all_ops() {
  static const Op* const list[] = {
#define OP(name, rule, vjp) &ops::table::name,
#include "runtime/ops.def"
#undef OP
  };
  return list;
}

}  // namespace quintet
