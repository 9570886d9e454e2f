#include "runtime/op.h"

namespace quintet {
namespace ops::table {
namespace {
constexpr Vjp none = nullptr;
}
#define OP(name, rule, vjp) const Op name{#name, Rule::parse(#name, rule), name##_cpu, vjp};
#include "runtime/ops.def"
#undef OP
}  // namespace ops::table

std::span<const Op* const> all_ops() {
  static const Op* const list[] = {
#define OP(name, rule, vjp) &ops::table::name,
#include "runtime/ops.def"
#undef OP
  };
  return list;
}

}  // namespace quintet
