#pragma once
// The op list as a table, made from ops.def: one record an op. A missing kernel, cost or gradient is a
// link error, not a run-time surprise.
//
//   Tensors y = call(ops::table::rms_norm, {x, scale}, {{"eps", 1e-6}});

#include <string_view>

#include "kernels/kernel.h"
#include "runtime/op/op_attributes.h"
#include "runtime/op/rule.h"
#include "runtime/tensor/tensor.h"

namespace quintet {

struct Node;
/// Gradients of a node's inputs (absent where none is needed) from those of its outputs (absent
/// where none arrived).
using Vjp = Tensors (*)(const Node& node, const Tensors& grads);
/// Which results to make; empty: optional ones only while a tape records.
using OutputMask = std::vector<bool>;
/// What call() does, by other ops.
using Phases = Tensors (*)(const Tensors& inputs, const Attrs& attrs, const OutputMask& mask);

/// What one launch of an op does, on the blocks that it is given.
struct Cost {
  /// Multiplications and additions of matrix products; scores that a backward pass makes again count
  /// once.
  double flops = 0;
  double score_bytes = 0;  // of attention's scores, if they were kept in memory; a gradient's twice
  double bytes = 0;        // of operands and results, each once: cost_of() adds them
  double exponentials = 0;  // of scores and logits
};
using CostOf = Cost (*)(Views in, Views out);
/// Of ops that only read and write.
Cost no_products(Views in, Views out);

struct Op {
  std::string_view name;
  Rule rule;
  std::vector<Attribute> attributes;
  Kernel cpu;
  size_t index;  // in ops.def: of the kernel in Device::ops()
  CostOf cost;
  Vjp vjp;        // nullptr: the op has no gradient
  Phases phases;  // where a `~` letter is sharded over ranks; nullptr: none

  /// Of a record of ops.def. Throws Bug naming the op if its rule or its attributes cannot be read or
  /// if it has no cost.
  Op(std::string_view name, std::string_view rule, std::string_view attributes, Kernel cpu,
     size_t index, CostOf cost, Vjp vjp, Phases phases);
};

/// The op's kernel on `device`.
Kernel kernel_of(const Op& op, const Device& device);

Cost cost_of(const Op& op, Views in, Views out);

/// Those of `attrs` that the record of `op` names: for an op that works with another's attributes.
Attrs attributes_for(const Op& op, const Attrs& attrs);

/// The only path by which an op runs: bind the rule, plan layouts, allocate, launch, record.
/// Throws a usage error when shapes do not fit the rule, Bug when attributes are not the record's.
Tensors call(const Op& op, const Tensors& inputs, const Attrs& attrs = {},
             const OutputMask& mask = {});

/// The same, with result i, which is one that the rule lets add, added to addends[i] as it is written, and where nobody
/// else has that, in its place: it is absent afterwards. One of another layout or dtype than the result's, or of one not
/// made or made in phases, stays and is not added. `addends`: one for each result, or absent.
Tensors call_adding(const Op& op, const Tensors& inputs, const Attrs& attrs, const OutputMask& mask,
                    Tensors& addends);

// Functions of the records, declared from the list: `none` is nothing's name.
#define OP(name, rule, attributes, cost, vjp, phases)                      \
  void name##_cpu(Views in, Views out, const Attrs& attrs, Stream stream); \
  Cost cost(Views in, Views out);                                          \
  Tensors vjp(const Node& node, const Tensors& grads);                     \
  Tensors phases(const Tensors& inputs, const Attrs& attrs, const OutputMask& mask);
#include "runtime/op/ops.def"
#undef OP

namespace ops::table {
#define OP(name, rule, attributes, cost, vjp, phases) extern const Op name;
#include "runtime/op/ops.def"
#undef OP
}  // namespace ops::table

/// Every op, in the order of ops.def.
std::span<const Op* const> all_ops();

}  // namespace quintet
