#include "runtime/op.h"
#include "runtime/profile.h"
#include "runtime/tape.h"

namespace quintet {
namespace {

bool any_needs_grad(const Tensors& tensors) {
  for (const Tensor& t : tensors)
    if (t.needs_grad()) return true;
  return false;
}

/// Mesh of one: every axis is whole, nothing is partial.
Layout layout_of(const Spec& spec) {
  Layout layout;
  layout.dims.resize(spec.axes.size());
  return layout;
}

}  // namespace

Tensors call(const Op& op, const Tensors& inputs, const Attrs& attrs, const Wanted& wanted) {
  const auto shapes = bind(op.name, op.rule, inputs, attrs, wanted);
  Tape* tape = Tape::current();
  const bool record = tape != nullptr && op.vjp != nullptr && any_needs_grad(inputs);

  Tensors outputs;
  std::vector<View> in, out;
  int64_t bytes = 0;
  for (const Tensor& t : inputs) in.push_back(t.local());
  for (size_t i = 0; i < shapes.size(); ++i) {
    const bool make = wanted.empty() ? !op.rule.outputs[i].optional || record : wanted[i];
    outputs.push_back(make ? Tensor(shapes[i].spec, layout_of(shapes[i].spec), shapes[i].block)
                           : Tensor());
    out.push_back(outputs.back().local());
  }
  for (const auto* views : {&in, &out})
    for (const View& v : *views)
      if (!v.absent()) bytes += v.elements() * size_of(v.dtype);
  {
    ProfileScope scope(op.name, bytes);
    Device& device = Device::current();
    kernel_of(op, device)(in, out, attrs, device.stream());
    if (Profile::current() != nullptr) device.synchronize();
  }
  if (record) {
    for (Tensor& t : outputs)
      if (t) t.set_needs_grad(true);
    tape->record({&op, inputs, outputs, attrs, nullptr});
  }
  return outputs;
}

}  // namespace quintet
