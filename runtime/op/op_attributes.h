#pragma once
// The attributes that an op's record names (ops.def): what a call may pass, and what a plan may read.

#include <string_view>
#include <vector>

#include "runtime/base/attrs.h"
#include "runtime/op/rule.h"

namespace quintet {

struct Attribute {
  enum class Type { kBool, kInt, kDouble };  // in the order of Attrs::Value
  std::string_view name;
  Type type = Type::kInt;
  bool optional = false;
};

/// Of "eps: double, causal: bool?", which must outlive them, as must the rule's text; the sizes of the
/// rule, all of them int, come first. Throws Bug naming the op if the text cannot be read or names one twice.
std::vector<Attribute> parse_attributes(std::string_view op, const Rule& rule,
                                        std::string_view text);

/// Throws Bug naming the op and the attribute if one is not declared, has another type (an int may
/// stand for a double) or is missing.
void check_attributes(std::string_view op, const std::vector<Attribute>& declared,
                      const Attrs& attrs);

/// Those of `attrs` that are declared: for an op that works with the attributes of another.
Attrs select_attributes(const std::vector<Attribute>& declared, const Attrs& attrs);

/// Those that sizes of a rule come from: all that a plan may read.
Attrs select_sizes(const Rule& rule, const Attrs& attrs);

}  // namespace quintet
