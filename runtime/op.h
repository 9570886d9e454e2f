#pragma once
// The op list as a table, made from ops.def: rule, kernel, gradient. A missing kernel or gradient
// is a link error, not a run-time surprise.
//
//   Tensors y = call(ops::table::rms_norm, {x, scale}, {{"eps", 1e-6}});

#include <string_view>

#include "kernels/kernel.h"
#include "runtime/rule.h"
#include "runtime/tensor.h"

namespace quintet {

struct Node;
/// Gradients of a node's inputs (absent where none is needed) from those of its outputs (absent
/// where none arrived).
using Vjp = Tensors (*)(const Node& node, const Tensors& grads);
/// Which results to make; empty: optional ones only while a tape records.
using Wanted = std::vector<bool>;
/// What call() does, by other ops.
using Phases = Tensors (*)(const Tensors& inputs, const Attrs& attrs, const Wanted& wanted);

struct Op {
  std::string_view name;
  Rule rule;
  Kernel cpu;
  size_t index;   // in ops.def: of the kernel in Device::ops()
  Vjp vjp;        // nullptr: the op has no gradient
  Phases phases;  // where a `~` letter is cut over ranks; nullptr: none
};

/// The op's kernel on `device`.
Kernel kernel_of(const Op& op, const Device& device);

/// The only path by which an op runs: bind the rule, plan layouts, allocate, launch, record.
/// Throws a usage error when shapes do not fit the rule.
Tensors call(const Op& op, const Tensors& inputs, const Attrs& attrs = {},
             const Wanted& wanted = {});

/// While a tape records or runs back, call() keeps the last activation that it moved; this lets go.
void forget_moves();

// Kernels and gradients, declared from the list.
#define OP(name, rule, vjp) void name##_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
#define PHASES(name) \
  Tensors name##_phases(const Tensors& inputs, const Attrs& attrs, const Wanted& wanted);
#include "runtime/ops.def"
#include "runtime/phases.def"
#undef OP
#undef PHASES
Tensors matmul_vjp(const Node& node, const Tensors& grads);
Tensors matmul_t_vjp(const Node& node, const Tensors& grads);
Tensors embed_vjp(const Node& node, const Tensors& grads);
Tensors mlp_vjp(const Node& node, const Tensors& grads);
Tensors attention_vjp(const Node& node, const Tensors& grads);
Tensors rms_norm_vjp(const Node& node, const Tensors& grads);
Tensors add_rms_norm_vjp(const Node& node, const Tensors& grads);
Tensors dropout_vjp(const Node& node, const Tensors& grads);
Tensors add_vjp(const Node& node, const Tensors& grads);
Tensors scale_vjp(const Node& node, const Tensors& grads);
Tensors cross_entropy_vjp(const Node& node, const Tensors& grads);
Tensors route_vjp(const Node& node, const Tensors& grads);
Tensors dispatch_vjp(const Node& node, const Tensors& grads);
Tensors combine_vjp(const Node& node, const Tensors& grads);
Tensors experts_in_vjp(const Node& node, const Tensors& grads);
Tensors grouped_matmul_vjp(const Node& node, const Tensors& grads);
Tensors experts_dropout_vjp(const Node& node, const Tensors& grads);
Tensors mask_tokens_vjp(const Node& node, const Tensors& grads);

namespace ops::table {
#define OP(name, rule, vjp) extern const Op name;
#define PHASES(name)
#include "runtime/ops.def"
#include "runtime/phases.def"
#undef OP
#undef PHASES
}  // namespace ops::table

/// Every op, in the order of ops.def; those of phases.def follow.
std::span<const Op* const> all_ops();

}  // namespace quintet
