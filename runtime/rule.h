#pragma once
// The einsum-like rule of an op (the language is described in ops.def): parsed once, then bound to
// the operands of each call, which checks their shapes and gives the results' shapes and blocks.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/attrs.h"
#include "runtime/tensor.h"

namespace quintet {

struct RuleTerm {
  std::string letters;      // one letter, or several for a merged axis
  bool whole = false;       // must not be cut over ranks
  bool statistics = false;  // may be, in phases
  bool per_block = false;   // a result's: one place for each of the letter's blocks
  bool fixed = false;       // an operand's: cut as it comes, never moved along this axis
};

struct RuleOperand {
  bool ellipsis = false;  // leading axes
  bool optional = false;
  bool float32 = false;    // a result: float32 whatever the operands
  bool int32 = false;      // a result: int32
  bool parameter = false;  // moves to where activations are
  std::vector<RuleTerm> terms;
};

struct Rule {
  std::vector<RuleOperand> inputs, outputs;

  /// Throws Bug naming the op if the text is not a rule.
  static Rule parse(std::string_view op, std::string_view text);
};

/// Shape of one result; `frame`: the rows of it that all ranks together make.
struct ResultShape {
  Spec spec;
  Block frame;
};

/// Checks `inputs` against the rule and derives every result; one that `wanted` (if not empty)
/// leaves out has no axes. Throws a usage error naming the op, the axis and the two operands that
/// disagree.
std::vector<ResultShape> bind(std::string_view op, const Rule& rule, const Tensors& inputs,
                              const Attrs& attrs, const std::vector<bool>& wanted = {});

}  // namespace quintet
