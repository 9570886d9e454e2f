#pragma once
// Operands and results of an op by the names in its rule (ops.def). A name that the rule does not have
// does not compile.
//
//   const auto in = inputs_of<rules::matmul>(node.inputs);
//   const Tensor &x = in["x"], &w = in["w"];

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

namespace quintet {

namespace rules {
#define OP(name, rule, attributes, cost, vjp, phases) \
  struct name {                                       \
    static constexpr std::string_view kText = rule;   \
  };
#include "runtime/op/ops.def"
#undef OP
}  // namespace rules

/// Where among `operands`, one side of a rule, that name stands.
consteval size_t position_of(std::string_view operands, std::string_view name) {
  size_t position = 0;
  while (!operands.empty()) {
    operands.remove_prefix(std::min(operands.find_first_not_of(' '), operands.size()));
    if (operands.starts_with(name) && operands.substr(name.size()).starts_with(':'))
      return position;
    operands.remove_prefix(std::min(operands.find(','), operands.size() - 1) + 1);
    ++position;
  }
  throw "the rule has no operand of this name";
}

enum class Side { kInputs, kResults };

template <class Op, Side side>
struct Position {
  size_t index;
  consteval Position(const char* name)
      : index(position_of(
            side == Side::kInputs ? Op::kText.substr(0, kArrow) : Op::kText.substr(kArrow + 2),
            name)) {}

 private:
  static constexpr size_t kArrow = Op::kText.find("->");
};

/// A list of one side's tensors or views, which must outlive this.
template <class Op, Side side, class T>
class Named {
 public:
  explicit Named(std::span<const T> all) : all_(all) {}
  const T& operator[](Position<Op, side> name) const { return all_[name.index]; }

 private:
  std::span<const T> all_;
};

template <class Op, class List>
Named<Op, Side::kInputs, typename List::value_type> inputs_of(const List& list) {
  return Named<Op, Side::kInputs, typename List::value_type>(list);
}
template <class Op, class List>
Named<Op, Side::kResults, typename List::value_type> results_of(const List& list) {
  return Named<Op, Side::kResults, typename List::value_type>(list);
}
template <class Op, class List>
void inputs_of(const List&& list) = delete;
template <class Op, class List>
void results_of(const List&& list) = delete;

}  // namespace quintet
