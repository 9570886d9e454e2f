#include "runtime/op/rule.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>

namespace quintet {
namespace {

/// Reads one side of the arrow.
class Parser {
 public:
  Parser(std::string_view op, std::string_view text) : op_(op), text_(text) {}

  std::vector<RuleOperand> side() {
    std::vector<RuleOperand> operands;
    while (at_ < text_.size()) {
      operands.emplace_back().name = name();
      while (at_ < text_.size() && text_[at_] != ',') read_into(operands.back());
      ++at_;
    }
    require(!operands.empty());
    return operands;
  }

  /// What follows `with`: "h = heads, k".
  std::vector<RuleSize> sizes() {
    std::vector<RuleSize> sizes;
    for (std::string_view letter = word(); !letter.empty(); letter = word()) {
      require(letter.size() == 1);
      sizes.push_back({letter, skip('=') ? word() : letter});
      require(skip(',') || at_ == text_.size());
    }
    return sizes;
  }

 private:
  void require(bool ok) const {
    if (!ok) throw Bug(fmt::format("rule of op {}: cannot read '{}' at {}", op_, text_, at_));
  }
  /// Whether that character comes next, after spaces; then it is read.
  bool skip(char wanted) {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    const bool found = at_ < text_.size() && text_[at_] == wanted;
    at_ += found ? 1 : 0;
    return found;
  }
  std::string_view word() {
    skip(' ');
    const size_t first = at_;
    const auto belongs = [](unsigned char c) {
      return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '_';
    };
    while (at_ < text_.size() && belongs(static_cast<unsigned char>(text_[at_]))) ++at_;
    return text_.substr(first, at_ - first);
  }
  std::string name() {
    const std::string_view name = word();
    require(!name.empty() && skip(':'));
    return std::string(name);
  }

  /// One axis or mark of an operand.
  void read_into(RuleOperand& operand) {
    const char c = text_[at_++];
    if (c == '.') {
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
      (c == '!'   ? term.unsharded
       : c == '~' ? term.statistics
       : c == '^' ? term.per_block
                  : term.fixed) = true;
    } else if (std::string_view("*+?&|'@#").find(c) != std::string_view::npos) {
      (c == '*'    ? operand.parameter
       : c == '+'  ? operand.again
       : c == '?'  ? operand.optional
       : c == '&'  ? operand.adds
       : c == '|'  ? operand.beside
       : c == '\'' ? operand.float32
       : c == '@'  ? operand.bytes
                   : operand.int32) = true;
    } else if (std::islower(static_cast<unsigned char>(c)) != 0) {
      operand.terms.push_back({.letters = std::string(1, c)});
    } else {
      require(c == ' ' || c == '_');
    }
  }

  std::string_view op_, text_;
  size_t at_ = 0;
};

/// Letters without a size are errors of whoever wrote the rule.
void check_sizes(std::string_view op, const Rule& rule) {
  std::set<std::string> known;
  const auto require = [&](bool ok, const std::string& letter) {
    if (!ok)
      throw Bug(
          fmt::format("rule of op {}: the size of '{}' is neither an operand's nor an "
                      "attribute's; add `with {} = its logical axis`",
                      op, letter, letter));
  };
  for (const auto* side : {&rule.inputs, &rule.outputs})
    for (const RuleOperand& operand : *side)
      for (const RuleTerm& term : operand.terms) {
        const std::string first(1, term.letters.front());
        const bool merged = term.letters.size() > 1, is_input = side == &rule.inputs;
        if (is_input) known.insert(term.letters);
        require(known.contains(term.letters) ||
                    std::ranges::all_of(
                        term.letters,
                        [&](const char c) { return rule.size_of(std::string(1, c)) != nullptr; }),
                term.letters);
        require(!merged || rule.size_of(first) != nullptr, first);
      }
}

struct Bound {
  Axis axis;
  int64_t origin, size;
  std::string_view operand;
};

/// What the letters and the leading axes stand for in one call.
class Binding {
 public:
  Binding(std::string_view op, const Rule& rule, const Attrs& attrs)
      : op_(op), rule_(rule), attrs_(attrs) {}

  void add(const RuleOperand& operand, const Tensor& tensor) {
    const auto& axes = tensor.spec().axes;
    const size_t lead = axes.size() - std::min(axes.size(), operand.terms.size());
    QT_CHECK(axes.size() >= operand.terms.size() && (operand.ellipsis || lead == 0),
             "{}: operand {} is {}, expected {} axes{}", op_, operand.name,
             to_string(tensor.spec()), operand.terms.size(), operand.ellipsis ? " or more" : "");
    if (operand.ellipsis) bind_leading(operand.name, tensor, lead);
    for (size_t i = 0; i < operand.terms.size(); ++i)
      bind_term(operand.terms[i].letters, bound(operand.name, tensor, lead + i));
  }

  ResultShape result(const RuleOperand& operand, DType dtype) const {
    ResultShape shape;
    shape.spec.dtype = dtype;
    if (operand.ellipsis)
      for (const Bound& b : leading_.value_or(std::vector<Bound>{})) append(shape, b);
    for (const RuleTerm& term : operand.terms)
      append(shape, term.per_block ? Bound{{axis::kBlocks, 1}, 0, 1, {}} : resolve(term.letters));
    return shape;
  }

 private:
  static void append(ResultShape& shape, const Bound& b) {
    shape.spec.axes.push_back(b.axis);
    shape.global_slice.origin.push_back(b.origin);
    shape.global_slice.sizes.push_back(b.size);
  }
  static Bound bound(std::string_view operand, const Tensor& tensor, size_t i) {
    return {tensor.spec().axes[i], tensor.global_slice().origin[i], tensor.global_slice().sizes[i],
            operand};
  }

  void bind_leading(std::string_view operand, const Tensor& tensor, size_t lead) {
    std::vector<Bound> axes;
    for (size_t i = 0; i < lead; ++i) axes.push_back(bound(operand, tensor, i));
    if (!leading_) {
      leading_ = std::move(axes);
      leading_operand_ = operand;
      return;
    }
    bool same = leading_->size() == lead;
    for (size_t i = 0; same && i < lead; ++i) same = agree((*leading_)[i], axes[i]);
    QT_CHECK(same, "{}: leading axes of operand {} {} differ from those of operand {}", op_,
             operand, to_string(tensor.spec()), leading_operand_);
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
    int64_t size = 1;
    for (const char letter : letters) size *= attrs_.get<int64_t>(std::string(1, letter));
    const auto named = rule_.size_of(letters.substr(letters.size() - 1));
    return {{std::string(named->axis), size}, 0, size, {}};
  }

  std::string_view op_;
  const Rule& rule_;
  const Attrs& attrs_;
  std::map<std::string, Bound> terms_;
  std::optional<std::vector<Bound>> leading_;
  std::string_view leading_operand_;
};

DType result_dtype(const RuleOperand& result, const Tensors& inputs) {
  if (result.float32) return DType::f32;
  if (result.int32) return DType::i32;
  if (result.bytes) return DType::u8;
  for (const Tensor& t : inputs)
    if (t && is_floating(t.spec().dtype)) return t.spec().dtype;
  return inputs.front().spec().dtype;
}

}  // namespace

Rule Rule::parse(std::string_view op, std::string_view text) {
  const size_t arrow = text.find("->");
  if (arrow == std::string_view::npos)
    throw Bug(fmt::format("rule of op {}: '{}' has no arrow", op, text));
  constexpr std::string_view kWith = " with ";
  const size_t with = std::min(text.find(kWith, arrow), text.size());
  Rule rule{Parser(op, text.substr(0, arrow)).side(),
            Parser(op, text.substr(arrow + 2, with - arrow - 2)).side(),
            {}};
  if (with < text.size()) rule.sizes = Parser(op, text.substr(with + kWith.size())).sizes();
  for (const RuleOperand& operand : rule.inputs)
    if (operand.adds || operand.beside)
      throw Bug(
          fmt::format("rule of op {}: '{}' is a result's mark", op, operand.adds ? '&' : '|'));
  if (rule.outputs.front().beside)
    throw Bug(fmt::format("rule of op {}: no result is before the first, which has '|'", op));
  check_sizes(op, rule);
  return rule;
}

const RuleSize* Rule::size_of(std::string_view letter) const {
  for (const RuleSize& size : sizes)
    if (size.letter == letter) return &size;
  return nullptr;
}

std::vector<ResultShape> bind(std::string_view op, const Rule& rule, const Tensors& inputs,
                              const Attrs& attrs, const std::vector<bool>& mask) {
  if (inputs.size() != rule.inputs.size())
    throw Bug(fmt::format("{}: {} operands, rule has {}", op, inputs.size(), rule.inputs.size()));
  Binding binding(op, rule, attrs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i]) {
      binding.add(rule.inputs[i], inputs[i]);
    } else if (!rule.inputs[i].optional) {
      throw Bug(fmt::format("{}: operand {} is absent", op, rule.inputs[i].name));
    }
  }
  std::vector<ResultShape> results;
  for (size_t i = 0; i < rule.outputs.size(); ++i)
    results.push_back(mask.empty() || mask[i]
                          ? binding.result(rule.outputs[i], result_dtype(rule.outputs[i], inputs))
                          : ResultShape{});
  return results;
}

}  // namespace quintet
