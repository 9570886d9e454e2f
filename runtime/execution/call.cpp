#include <algorithm>
#include <utility>

#include "runtime/abstract/step_clock.h"
#include "runtime/execution/gather_cache.h"
#include "runtime/execution/reshard.h"
#include "runtime/execution/tape.h"
#include "runtime/op/op.h"
#include "runtime/plan/plan_cache.h"
#include "runtime/profile/profile.h"
#include "runtime/profile/step_log.h"
#include "runtime/tensor/batched.h"

namespace quintet {
namespace {

bool any_needs_grad(const Tensors& tensors) {
  for (const Tensor& t : tensors)
    if (t.needs_grad()) return true;
  return false;
}

/// `addends`, one for each result or absent, follow the operands if there are any.
void launch(const Op& op, const Tensors& inputs, const Tensors& outputs, const Attrs& attrs,
            const Tensors& addends) {
  const ExecutionContext& context = ExecutionContext::current();
  std::vector<View> in, out;
  for (const Tensor& t : inputs) in.push_back(t.local());
  for (const Tensor& t : outputs) out.push_back(t.local());
  const bool is_profiled = context.profile != nullptr;
  Cost cost = context.clock != nullptr || is_profiled ? cost_of(op, in, out) : Cost{};
  if (std::ranges::any_of(addends, [](const Tensor& t) { return !t.absent(); }))
    for (const Tensor& t : addends) {
      in.push_back(t.local());
      if (t) cost.bytes += static_cast<double>(t.bytes());
    }
  if (context.clock != nullptr) context.clock->op(op.name, cost);
  ProfileScope scope(op.name, static_cast<int64_t>(cost.bytes), cost.flops);
  Device& device = Device::current();
  kernel_of(op, device)(in, out, attrs, device.stream());
  if (is_profiled) device.synchronize();
}

/// A result, in the place of `addend` if that is nobody else's. `addend` is taken, but for one of another layout or dtype.
Tensor new_result(const ResultShape& shape, const Layout& layout, Tensor& addend, Tensor& taken,
                  Buffer memory = nullptr) {
  QT_ASSERT(addend.absent() || addend.global_slice().sizes == shape.global_slice.sizes);
  if (addend && addend.layout() == layout && addend.spec().dtype == shape.spec.dtype)
    taken = std::exchange(addend, {});
  if (taken && taken.unique()) return taken;
  return Tensor(shape.spec, layout, shape.global_slice, std::move(memory));
}

/// Of results that lie side by side, `|` in ops.def; nullptr: of one that does not.
std::vector<Buffer> side_by_side(const Op& op, const std::vector<ResultShape>& shapes,
                                 const std::vector<Layout>& layouts, const OutputMask& make,
                                 const Tensors& addends) {
  std::vector<Buffer> memory(shapes.size());
  Device& device = Device::current();
  if (!batches_products(device)) return memory;
  const auto bytes = [&](size_t i) {
    const DType dtype = shapes[i].spec.dtype;
    if (!make[i] ||
        (addends[i] && addends[i].spec().dtype == dtype && addends[i].layout() == layouts[i]))
      return int64_t{-1};
    int64_t product = size_of(dtype);
    const Block block = layouts[i].sharded()
                            ? ExecutionContext::current().sharding->block(
                                  op.name, shapes[i].spec, layouts[i], shapes[i].global_slice)
                            : shapes[i].global_slice;
    for (const int64_t size : block.sizes) product *= size;
    return product;
  };
  for (size_t i = 0, end = 1; i < shapes.size(); i = end) {
    for (end = i + 1; end < shapes.size() && op.rule.outputs[end].beside && bytes(i) >= 0 &&
                      bytes(end) == bytes(i);)
      ++end;
    if (end - i > 1)
      std::ranges::move(device.memory().allocate_side_by_side(bytes(i), end - i),
                        memory.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return memory;
}

Tensors run_unsharded(const Op& op, const Tensors& inputs, const std::vector<ResultShape>& shapes,
                      const Attrs& attrs, const OutputMask& make, Tensors& addends) {
  Tensors outputs, taken(shapes.size());
  std::vector<Layout> layouts;
  for (const ResultShape& shape : shapes)
    layouts.push_back(Layout::replicated(shape.spec.axes.size()));
  std::vector<Buffer> memory = side_by_side(op, shapes, layouts, make, addends);
  for (size_t i = 0; i < shapes.size(); ++i)
    outputs.push_back(
        make[i] ? new_result(shapes[i], layouts[i], addends[i], taken[i], std::move(memory[i]))
                : Tensor());
  launch(op, inputs, outputs, attrs, taken);
  return outputs;
}

/// Operands where a plan wants them. Gathered parameters die with it.
class Operands {
 public:
  Operands(const Op& op, const Tensors& inputs, const Plan& plan)
      : gather_cache_(ExecutionContext::current().gather_cache) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool reshards = inputs[i] && inputs[i].layout() != plan.inputs[i];
      gathered_.push_back(reshards && op.rule.inputs[i].parameter);
      all_.push_back(gathered_[i] ? gathered(inputs[i], plan.inputs[i])
                     : reshards   ? resharded_activation(inputs[i], plan.inputs[i])
                                  : inputs[i]);
    }
  }
  ~Operands() { drop(); }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  const Tensors& all() const { return all_; }
  void drop() {
    for (size_t i = 0; i < all_.size(); ++i)
      if (gathered_[i] && gather_cache_ != nullptr) gather_cache_->drop(std::move(all_[i]));
    all_.clear();
  }

 private:
  Tensor gathered(const Tensor& parameter, const Layout& to) const {
    return gather_cache_ != nullptr ? gather_cache_->take(parameter, to) : resharded(parameter, to);
  }

  GatherCache* gather_cache_;
  Tensors all_;
  std::vector<bool> gathered_;
};

/// What the op's gradient will want resharded as the op does, where it computes more than that operand's own.
std::vector<std::pair<Tensor, Layout>> wanted_again(const Op& op, const Tensors& inputs,
                                                    const Plan& plan) {
  std::vector<std::pair<Tensor, Layout>> wanted;
  for (size_t i = 0; i < inputs.size() && !plan.in_phases; ++i) {
    if (!op.rule.inputs[i].again || inputs[i].layout() == plan.inputs[i]) continue;
    Tensors others = inputs;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    if (any_needs_grad(others)) wanted.emplace_back(inputs[i], plan.inputs[i]);
  }
  return wanted;
}

/// The op on a mesh: operands go where the plan wants them, results where the rules do.
Tensors run_sharded(const Op& op, const Tensors& inputs, std::vector<ResultShape> shapes,
                    const Attrs& attrs, const OutputMask& make, const Sharding& sharding,
                    Tensors& addends) {
  const Plan& plan = planned(op, inputs, shapes, attrs, make, sharding);
  Operands operands(op, inputs, plan);
  if (plan.in_phases) {
    Tape::Recording paused(nullptr);
    return op.phases(operands.all(), attrs, make);
  }
  Tensors outputs, taken(shapes.size());
  std::vector<Buffer> memory = side_by_side(op, shapes, plan.results, make, addends);
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (const int64_t blocks = plan.blocks[i]; blocks > 0)
      for (size_t d = 0; d < shapes[i].spec.axes.size(); ++d)
        if (shapes[i].spec.axes[d].name == axis::kBlocks)
          shapes[i].spec.axes[d].size = shapes[i].global_slice.sizes[d] = blocks;
    outputs.push_back(
        make[i] ? new_result(shapes[i], plan.results[i], addends[i], taken[i], std::move(memory[i]))
                : Tensor());
  }
  const ExecutionContext& context = ExecutionContext::current();
  if (context.log != nullptr) context.log->op(op, operands.all(), outputs, plan);
  gather_ahead();
  launch(op, operands.all(), outputs, attrs, taken);
  operands.drop();
  if (!context.in_backward())
    for (size_t i = 0; i < outputs.size(); ++i) {
      // A sum that is saved for the gradient alone is one of several to be taken together.
      const bool open = op.rule.outputs[i].optional && !plan.results[i].partial.empty();
      if (make[i] && plan.blocks[i] == 0 && !open)
        outputs[i] = resharded(std::move(outputs[i]), plan.targets[i]);
    }
  return outputs;
}

/// call_adding().
Tensors run(const Op& op, const Tensors& inputs, const Attrs& attrs, const OutputMask& mask,
            Tensors& addends) {
  check_attributes(op.name, op.attributes, attrs);
  const auto shapes = bind(op.name, op.rule, inputs, attrs, mask);
  const ExecutionContext& context = ExecutionContext::current();
  Tape* const tape = context.tape;
  const bool record = tape != nullptr && op.vjp != nullptr && any_needs_grad(inputs);
  OutputMask make = mask;
  if (make.empty())
    for (const RuleOperand& output : op.rule.outputs) make.push_back(!output.optional || record);
  KeptProducts* const products = KeptProducts::holds(op) ? context.kept_products : nullptr;
  std::optional<Tensors> kept = products != nullptr ? products->take() : std::nullopt;
  Tensors outputs = kept ? std::move(*kept)
                    : context.sharding == nullptr
                        ? run_unsharded(op, inputs, shapes, attrs, make, addends)
                        : run_sharded(op, inputs, shapes, attrs, make, *context.sharding, addends);
  if (products != nullptr) products->keep(outputs);
  if (record) {
    for (Tensor& t : outputs)
      if (t) t.set_needs_grad(true);
    Node node{&op, inputs, outputs, attrs};
    if (context.sharding != nullptr)
      node.wanted_again =
          wanted_again(op, inputs, planned(op, inputs, shapes, attrs, make, *context.sharding));
    tape->record(std::move(node));
  }
  return outputs;
}

}  // namespace

Tensors call(const Op& op, const Tensors& inputs, const Attrs& attrs, const OutputMask& mask) {
  Tensors none(op.rule.outputs.size());
  return run(op, inputs, attrs, mask, none);
}

Tensors call_adding(const Op& op, const Tensors& inputs, const Attrs& attrs, const OutputMask& mask,
                    Tensors& addends) {
  QT_ASSERT(addends.size() == op.rule.outputs.size());
  for (size_t i = 0; i < addends.size(); ++i)
    QT_ASSERT(addends[i].absent() || op.rule.outputs[i].adds);
  return run(op, inputs, attrs, mask, addends);
}

}  // namespace quintet
