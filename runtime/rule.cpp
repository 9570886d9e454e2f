#include "runtime/rule.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

namespace quintet {
namespace {

/// Reads one side of the arrow.
class Parser {
 public:
  Parser(std::string_view op, std::string_view text) : op_(op), text_(text) {}

  std::vector<RuleOperand> side() {
    std::vector<RuleOperand> operands{RuleOperand{}};
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      RuleOperand& operand = operands.back();
      if (c == ',') {
        operands.emplace_back();
      } else if (c == '.') {
        require(text_.substr(at_, 2) == ".." && operand.terms.empty() && !operand.ellipsis);
        at_ += 2;
        operand.ellipsis = true;
      } else if (c == '(') {
        const size_t close = text_.find(')', at_);
        require(close != std::string_view::npos && close > at_);
        operand.terms.push_back({.letters = std::string(text_.substr(at_, close - at_))});
        at_ = close + 1;
      } else if (c == '!' || c == '~' || c == '^' || c == '=') {
        require(!operand.terms.empty());
        RuleTerm& term = operand.terms.back();
        (c == '!'   ? term.whole
         : c == '~' ? term.statistics
         : c == '^' ? term.per_block
                    : term.fixed) = true;
      } else if (c == '*') {
        operand.parameter = true;
      } else if (c == '?') {
        operand.optional = true;
      } else if (c == '\'') {
        operand.float32 = true;
      } else if (c == '#') {
        operand.int32 = true;
      } else if (std::islower(static_cast<unsigned char>(c)) != 0) {
        operand.terms.push_back({.letters = std::string(1, c)});
      } else {
        require(c == ' ' || c == '_');
      }
    }
    return operands;
  }

 private:
  void require(bool ok) const {
    if (!ok) throw Bug(fmt::format("rule of op {}: cannot read '{}' at {}", op_, text_, at_));
  }
  std::string_view op_, text_;
  size_t at_ = 0;
};

/// Logical axis of a letter that no operand has: the rules of a mesh know it by name.
std::string name_of_letter(const std::string& letter) {
  return letter == "v"   ? axis::kVocab
         : letter == "h" ? axis::kHeads
         : letter == "x" ? axis::kExpert
                         : letter;
}

struct Bound {
  Axis axis;
  int64_t origin, size;
  size_t operand;
};

/// What the letters and the leading axes stand for in one call.
class Binding {
 public:
  Binding(std::string_view op, const Attrs& attrs) : op_(op), attrs_(attrs) {}

  void add(size_t index, const RuleOperand& operand, const Tensor& tensor) {
    const auto& axes = tensor.spec().axes;
    const size_t lead = axes.size() - std::min(axes.size(), operand.terms.size());
    QT_CHECK(axes.size() >= operand.terms.size() && (operand.ellipsis || lead == 0),
             "{}: operand {} is {}, expected {} axes{}", op_, index, to_string(tensor.spec()),
             operand.terms.size(), operand.ellipsis ? " or more" : "");
    if (operand.ellipsis) bind_leading(index, tensor, lead);
    for (size_t i = 0; i < operand.terms.size(); ++i)
      bind_term(operand.terms[i].letters, bound(index, tensor, lead + i));
  }

  ResultShape result(const RuleOperand& operand, DType dtype) const {
    ResultShape shape;
    shape.spec.dtype = dtype;
    if (operand.ellipsis)
      for (const Bound& b : leading_.value_or(std::vector<Bound>{})) append(shape, b);
    for (const RuleTerm& term : operand.terms)
      append(shape, term.per_block ? Bound{{axis::kBlocks, 1}, 0, 1, 0} : resolve(term.letters));
    return shape;
  }

 private:
  static void append(ResultShape& shape, const Bound& b) {
    shape.spec.axes.push_back(b.axis);
    shape.frame.origin.push_back(b.origin);
    shape.frame.sizes.push_back(b.size);
  }
  static Bound bound(size_t operand, const Tensor& tensor, size_t i) {
    return {tensor.spec().axes[i], tensor.frame().origin[i], tensor.frame().sizes[i], operand};
  }

  void bind_leading(size_t index, const Tensor& tensor, size_t lead) {
    std::vector<Bound> axes;
    for (size_t i = 0; i < lead; ++i) axes.push_back(bound(index, tensor, i));
    if (!leading_) {
      leading_ = std::move(axes);
      return;
    }
    bool same = leading_->size() == lead;
    for (size_t i = 0; same && i < lead; ++i) same = agree((*leading_)[i], axes[i]);
    QT_CHECK(same, "{}: leading axes of operand {} {} differ from those of operand {}", op_, index,
             to_string(tensor.spec()), leading_->empty() ? 0 : leading_->front().operand);
  }

  void bind_term(const std::string& letters, const Bound& b) {
    const auto [found, inserted] = terms_.emplace(letters, b);
    QT_CHECK(agree(found->second, b),
             "{}: axis '{}' is {}={} in operand {} and {}={} in operand {}", op_, letters,
             found->second.axis.name, found->second.axis.size, found->second.operand, b.axis.name,
             b.axis.size, b.operand);
  }

  static bool agree(const Bound& a, const Bound& b) {
    return a.axis == b.axis && a.origin == b.origin && a.size == b.size;
  }

  Bound resolve(const std::string& letters) const {
    const auto found = terms_.find(letters);
    if (found != terms_.end()) return found->second;
    const int64_t size = attrs_.get<int64_t>(letters);
    return {{name_of_letter(letters), size}, 0, size, 0};
  }

  std::string_view op_;
  const Attrs& attrs_;
  std::map<std::string, Bound> terms_;
  std::optional<std::vector<Bound>> leading_;
};

DType result_dtype(const RuleOperand& result, const Tensors& inputs) {
  if (result.float32) return DType::f32;
  if (result.int32) return DType::i32;
  for (const Tensor& t : inputs)
    if (t && is_floating(t.spec().dtype)) return t.spec().dtype;
  return inputs.front().spec().dtype;
}

}  // namespace

Rule Rule::parse(std::string_view op, std::string_view text) {
  const size_t arrow = text.find("->");
  if (arrow == std::string_view::npos)
    throw Bug(fmt::format("rule of op {}: '{}' has no arrow", op, text));
  return {Parser(op, text.substr(0, arrow)).side(), Parser(op, text.substr(arrow + 2)).side()};
}

std::vector<ResultShape> bind(std::string_view op, const Rule& rule, const Tensors& inputs,
                              const Attrs& attrs, const std::vector<bool>& wanted) {
  if (inputs.size() != rule.inputs.size())
    throw Bug(fmt::format("{}: {} operands, rule has {}", op, inputs.size(), rule.inputs.size()));
  Binding binding(op, attrs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i]) {
      binding.add(i, rule.inputs[i], inputs[i]);
    } else if (!rule.inputs[i].optional) {
      throw Bug(fmt::format("{}: operand {} is absent", op, i));
    }
  }
  std::vector<ResultShape> results;
  for (size_t i = 0; i < rule.outputs.size(); ++i)
    results.push_back(wanted.empty() || wanted[i]
                          ? binding.result(rule.outputs[i], result_dtype(rule.outputs[i], inputs))
                          : ResultShape{});
  return results;
}

}  // namespace quintet
