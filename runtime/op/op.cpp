#include "runtime/op/op.h"

namespace quintet {
namespace ops::table {
namespace {
constexpr std::nullptr_t none = nullptr;
enum Index : size_t {
#define OP(name, rule, attributes, cost, vjp, phases) index_of_##name,
#include "runtime/op/ops.def"
#undef OP
};
}  // namespace
#define OP(name, rule, attributes, cost, vjp, phases) \
  const Op name(#name, rule, attributes, name##_cpu, index_of_##name, cost, vjp, phases);
#include "runtime/op/ops.def"
#undef OP
}  // namespace ops::table

Op::Op(std::string_view op, std::string_view rule_text, std::string_view attribute_text,
       Kernel cpu_kernel, size_t position, CostOf cost_function, Vjp vjp_function,
       Phases phases_function)
    : name(op),
      rule(Rule::parse(op, rule_text)),
      attributes(parse_attributes(op, rule, attribute_text)),
      cpu(cpu_kernel),
      index(position),
      cost(cost_function),
      vjp(vjp_function),
      phases(phases_function) {
  if (cost == nullptr)
    throw Bug(
        fmt::format("op {} has no cost: name a function that counts its products in ops.def, "
                    "or no_products",
                    op));
}

Kernel kernel_of(const Op& op, const Device& device) {
  return device.is_cpu() ? op.cpu : device.ops()[op.index];
}

Cost no_products(Views, Views) { return {}; }

Cost cost_of(const Op& op, Views in, Views out) {
  Cost cost = op.cost(in, out);
  for (const Views& views : {in, out})
    for (const View& view : views)
      if (!view.absent()) cost.bytes += static_cast<double>(view.elements() * size_of(view.dtype));
  return cost;
}

Attrs attributes_for(const Op& op, const Attrs& attrs) {
  return select_attributes(op.attributes, attrs);
}

std::span<const Op* const> all_ops() {
  static const Op* const list[] = {
#define OP(name, rule, attributes, cost, vjp, phases) &ops::table::name,
#include "runtime/op/ops.def"
#undef OP
  };
  return list;
}

}  // namespace quintet
