#include "runtime/configurables/shape_expression.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>

#include "runtime/base/check.h"

namespace quintet {
namespace {

using Tuple = std::vector<int64_t>;

double product(const Tuple& t) {
  return std::accumulate(t.begin(), t.end(), 1.0,
                         [](double a, int64_t b) { return a * static_cast<double>(b); });
}
double sum(const Tuple& t) {
  return std::accumulate(t.begin(), t.end(), 0.0,
                         [](double a, int64_t b) { return a + static_cast<double>(b); });
}
constexpr int kMostNested = 100;
constexpr size_t kMostItems = 64;      // of a tuple
constexpr double kMostExact = 0x1p53;  // whole numbers up to it are exact

/// One after the other of a text, by Python's precedence.
class ShapeExpression {
 public:
  ShapeExpression(const std::string& text, const Tuple& shape, const std::string& where)
      : text_(text), shape_(shape), where_(where) {}

  Evaluated whole() {
    Evaluated value = additive();
    if (peek() != 0 || at_ != text_.size()) fail_here();
    const double* number = std::get_if<double>(&value);
    QT_CHECK(number == nullptr || std::isfinite(*number),
             "{}: '{}' is not finite for the shape ({})", where_, text_, fmt::join(shape_, ", "));
    return value;
  }

 private:
  [[noreturn]] void fail_here() const {
    fail(ExitCode::kUsage,
         "{}: '{}' is not understood from character {} on; numbers, tuples, SHAPE, indices, + - * "
         "/ // % **, and "
         "functions such as prod and sqrt are",
         where_, text_, at_ + 1);
  }
  char peek() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(std::string_view token) {
    peek();
    if (!std::string_view(text_).substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  void need(std::string_view token) {
    if (!take(token)) fail_here();
  }
  double number(const Evaluated& value) const {
    if (const double* x = std::get_if<double>(&value)) return *x;
    fail_here();
  }
  int64_t whole_number(const Evaluated& value) const {
    const double x = number(value);
    if (x != std::floor(x) || std::abs(x) > kMostExact) fail_here();
    return static_cast<int64_t>(x);
  }

  Evaluated additive() {
    Evaluated value = product_of();
    for (;;) {
      if (take("+")) {
        const Evaluated more = product_of();
        if (auto* tuple = std::get_if<Tuple>(&value)) {
          const Tuple* behind = std::get_if<Tuple>(&more);
          if (behind == nullptr) fail_here();
          tuple->insert(tuple->end(), behind->begin(), behind->end());
        } else {
          value = number(value) + number(more);
        }
      } else if (take("-")) {
        value = number(value) - number(product_of());
      } else {
        return value;
      }
    }
  }
  Evaluated product_of() {
    Evaluated value = unary();
    for (;;) {
      if (take("//")) {
        value = std::floor(number(value) / divisor());
      } else if (take("/")) {
        value = number(value) / divisor();
      } else if (take("%")) {
        const double by = divisor(), x = number(value);
        value = x - by * std::floor(x / by);
      } else if (peek() == '*' && !std::string_view(text_).substr(at_).starts_with("**")) {
        need("*");
        value = times(value, unary());
      } else {
        return value;
      }
    }
  }
  double divisor() {
    const double x = number(unary());
    if (x == 0) fail_here();
    return x;
  }
  Evaluated times(const Evaluated& a, const Evaluated& b) const {
    if (std::holds_alternative<Tuple>(b)) return times(b, a);
    const Tuple* tuple = std::get_if<Tuple>(&a);
    if (tuple == nullptr) return number(a) * number(b);
    Tuple repeated;
    const int64_t count = std::max<int64_t>(whole_number(b), 0);
    if (!tuple->empty() && count > static_cast<int64_t>(kMostItems / tuple->size())) fail_here();
    for (int64_t i = 0; i < count && !tuple->empty(); ++i)
      repeated.insert(repeated.end(), tuple->begin(), tuple->end());
    return repeated;
  }
  /// All that nests passes here.
  Evaluated unary() {
    if (++nested_ > kMostNested) fail_here();
    Evaluated value = signed_power();
    --nested_;
    return value;
  }
  Evaluated signed_power() {
    if (take("-")) return -number(unary());
    Evaluated value = postfix();
    return take("**") ? Evaluated(std::pow(number(value), number(unary()))) : value;
  }
  Evaluated postfix() {
    Evaluated value = atom();
    while (take("[")) {
      const Tuple* tuple = std::get_if<Tuple>(&value);
      if (tuple == nullptr) fail_here();
      value = indexed(*tuple);
    }
    return value;
  }
  /// SHAPE[1], SHAPE[-1], SHAPE[:-1], SHAPE[::2]: up to the closing bracket.
  Evaluated indexed(const Tuple& tuple) {
    const auto size = std::ssize(tuple);
    const auto bound = [&]() -> std::optional<int64_t> {
      if (peek() == ':' || peek() == ']') return std::nullopt;
      return whole_number(additive());
    };
    const auto first = bound();
    if (!take(":")) {
      const int64_t i = first.value_or(size) < 0 ? *first + size : first.value_or(size);
      if (i < 0 || i >= size) fail_here();
      need("]");
      return static_cast<double>(tuple[static_cast<size_t>(i)]);
    }
    const auto last = bound();
    const int64_t step = take(":") ? bound().value_or(1) : 1;
    need("]");
    if (step < 1) fail_here();
    const auto within = [&](int64_t i) {
      return std::clamp(i < 0 ? i + size : i, int64_t{0}, size);
    };
    Tuple part;
    for (int64_t i = within(first.value_or(0)); i < within(last.value_or(size)); i += step)
      part.push_back(tuple[static_cast<size_t>(i)]);
    return part;
  }
  Evaluated atom() {
    const char c = peek();
    if (take("(")) return parenthesized();
    if (std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.') {
      double x = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), x);
      if (error != std::errc()) fail_here();
      at_ = static_cast<size_t>(end - text_.data());
      return x;
    }
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      ++at_;
    const std::string name = text_.substr(begin, at_ - begin);
    if (name == "SHAPE") return shape_;
    at_ = begin;
    return called(name);
  }
  /// A tuple, or what stands in parentheses.
  Evaluated parenthesized() {
    Tuple items;
    std::optional<Evaluated> only;
    bool is_tuple = peek() == ')';
    while (!take(")")) {
      only = additive();
      if (take(","))
        is_tuple = true;
      else if (peek() != ')')
        fail_here();
      if (is_tuple) items.push_back(whole_number(*only));
    }
    return is_tuple ? Evaluated(items) : *only;
  }
  Evaluated called(const std::string& name) {
    using OfNumber = std::function<double(double)>;
    using OfTuple = std::function<double(const Tuple&)>;
    static const std::map<std::string, OfNumber> kOfNumber{
        {"sqrt", [](double x) { return std::sqrt(x); }},
        {"exp", [](double x) { return std::exp(x); }},
        {"log", [](double x) { return std::log(x); }},
        {"log2", [](double x) { return std::log2(x); }},
        {"log10", [](double x) { return std::log10(x); }},
        {"floor", [](double x) { return std::floor(x); }},
        {"ceil", [](double x) { return std::ceil(x); }},
        {"fabs", [](double x) { return std::fabs(x); }},
        {"abs", [](double x) { return std::fabs(x); }}};
    static const std::map<std::string, OfTuple> kOfTuple{
        {"prod", product},
        {"sum", sum},
        {"mean", [](const Tuple& t) { return sum(t) / static_cast<double>(t.size()); }},
        {"max", [](const Tuple& t) { return static_cast<double>(std::ranges::max(t)); }},
        {"min", [](const Tuple& t) { return static_cast<double>(std::ranges::min(t)); }}};
    const auto of_number = kOfNumber.find(name);
    const auto of_tuple = kOfTuple.find(name);
    if (name != "pow" && of_number == kOfNumber.end() && of_tuple == kOfTuple.end()) fail_here();
    at_ += name.size();
    need("(");
    const Evaluated argument = additive();
    Evaluated value;
    if (name == "pow") {
      need(",");
      value = std::pow(number(argument), number(additive()));
    } else if (of_number != kOfNumber.end()) {
      value = of_number->second(number(argument));
    } else {
      const Tuple* tuple = std::get_if<Tuple>(&argument);
      if (tuple == nullptr || (tuple->empty() && (name == "max" || name == "min"))) fail_here();
      value = of_tuple->second(*tuple);
    }
    need(")");
    return value;
  }

  const std::string& text_;
  const Tuple& shape_;
  const std::string& where_;
  size_t at_ = 0;
  int nested_ = 0;
};

}  // namespace

Evaluated evaluate_shape_expression(const std::string& text, const std::vector<int64_t>& shape,
                                    const std::string& where) {
  return ShapeExpression(text, shape, where).whole();
}

}  // namespace quintet
