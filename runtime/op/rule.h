#pragma once
// The einsum-like rule of an op (the language is described in ops.def): parsed once, then bound to
// the operands of each call, which checks their shapes and gives the results' shapes and blocks.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/attrs.h"
#include "runtime/tensor/tensor.h"

namespace quintet {

struct RuleTerm {
  std::string letters;      // one letter, or several for a merged axis
  bool unsharded = false;   // must not be sharded over ranks
  bool statistics = false;  // may be, in phases
  bool per_block = false;   // a result's: one place for each of the letter's blocks
  bool fixed = false;       // an operand's: sharded as it comes, never resharded along this axis
};

struct RuleOperand {
  std::string name;
  bool ellipsis = false;  // leading axes
  bool optional = false;
  bool float32 = false;    // whatever the activations' dtype
  bool int32 = false;      // else
  bool bytes = false;      // else: a result's, uint8
  bool parameter = false;  // resharded to where activations are
  bool again = false;      // where it is resharded, the gradient wants it likewise
  bool adds = false;       // a result's: an operand more may say what it is added to
  bool beside = false;     // a result's: lies beside the one before it in memory
  std::vector<RuleTerm> terms;
};

/// A letter whose size is the attribute of that name.
struct RuleSize {
  std::string_view letter, axis;  // axis: its logical name, for results; by default the letter
};

struct Rule {
  std::vector<RuleOperand> inputs, outputs;
  std::vector<RuleSize> sizes;

  /// Of a text that outlives it. Throws Bug naming the op if that is not a rule, or if a letter has no
  /// size.
  static Rule parse(std::string_view op, std::string_view text);
  /// Of that letter; nullptr if it is not an attribute.
  const RuleSize* size_of(std::string_view letter) const;
};

/// Shape of one result; `global_slice`: the rows of it that all ranks together make.
struct ResultShape {
  Spec spec;
  Block global_slice;
};

/// Checks `inputs` against the rule and derives every result; one that `mask` (if not empty)
/// leaves out has no axes. Throws a usage error naming the op, the axis and the two operands that
/// disagree.
std::vector<ResultShape> bind(std::string_view op, const Rule& rule, const Tensors& inputs,
                              const Attrs& attrs, const std::vector<bool>& mask = {});

}  // namespace quintet
