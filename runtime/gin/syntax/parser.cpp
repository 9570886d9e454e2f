#include "runtime/gin/syntax/parser.h"

#include <map>

#include "runtime/gin/syntax/error.h"
#include "runtime/gin/syntax/literal.h"
#include "runtime/gin/syntax/unicode.h"

namespace quintet::gin {
namespace {

bool is_identifier(std::string_view text) {
  if (text.empty()) return false;
  const char c = text[0];
  if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_')) return false;
  for (size_t i = 0; i < text.size();)
    if (!is_word(next_code_point(text, i))) return false;
  return true;
}

bool is_module(const std::string& text) {
  for (const std::string& part : split(text, '.'))
    if (!is_identifier(part)) return false;
  return true;
}

std::string_view without_newline(std::string_view line) {
  return line.ends_with('\n') ? line.substr(0, line.size() - 1) : line;
}

}  // namespace

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(separator, begin)) != std::string::npos; begin = end + 1)
    parts.push_back(text.substr(begin, end - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

std::pair<std::string, std::string> split_scope(const std::string& scoped) {
  const size_t slash = scoped.rfind('/');
  if (slash == std::string::npos) return {"", scoped};
  return {scoped.substr(0, slash), scoped.substr(slash + 1)};
}

std::string ImportStatement::format() const {
  std::string out = "import " + module;
  if (is_from) {
    const size_t dot = module.rfind('.');
    out = "from " + module.substr(0, dot) + " import " + module.substr(dot + 1);
  }
  return alias.empty() ? out : out + " as " + alias;
}

std::string ImportStatement::bound_name() const {
  if (!alias.empty()) return alias;
  return is_from ? module.substr(module.rfind('.') + 1) : module.substr(0, module.find('.'));
}

Parser::Parser(std::string_view text, std::string name) : tokens_(text, std::move(name)) {
  advance();
}

void Parser::fail_at(const Token& token, const std::string& message) const {
  const std::string_view before =
      token.line_text.substr(0, std::min(token.begin, token.line_text.size()));
  throw ConfigError({tokens_.name(), token.line}, static_cast<int>(count_code_points(before)),
                    message, std::string(without_newline(token.line_text)));
}

void Parser::advance() { token_ = tokens_.next(); }

void Parser::skip_blanks() {
  while (
      token_.type == TokenType::kComment || token_.type == TokenType::kBlank ||
      (!within_block_ && (token_.type == TokenType::kIndent || token_.type == TokenType::kDedent)))
    advance();
}

void Parser::advance_and_skip() {
  advance();
  skip_blanks();
}

void Parser::expect_newline() {
  if (token_.type != TokenType::kNewline)
    fail_here(
        fmt::format("Expected newline, got {} '{}'", token_type_name(token_.type), token_.text));
}

std::optional<Statement> Parser::next() {
  if (!queue_.empty()) {
    Statement s = std::move(queue_.front());
    queue_.pop_front();
    return s;
  }
  skip_blanks();
  if (token_.type == TokenType::kEnd) return std::nullopt;
  Statement s;
  s.where = {tokens_.name(), token_.line};
  s.source = without_newline(token_.line_text);
  const std::string key = parse_selector(true, false);
  if (at("=")) {
    advance();
    BindingStatement binding;
    binding.value = parse_value();
    std::tie(binding.scope, binding.selector) = split_scope(key);
    if (const size_t dot = binding.selector.rfind('.'); dot != std::string::npos) {
      binding.arg = binding.selector.substr(dot + 1);
      binding.selector.resize(dot);
    }
    s.what = std::move(binding);
  } else if (at(":")) {
    parse_block(key, s);
    s = std::move(queue_.front());
    queue_.pop_front();
  } else if (key == "import" || key == "from") {
    s.what = parse_import(key == "from");
  } else if (key == "include") {
    const Token place = token_;
    const std::optional<Value> file = parse_literal();
    if (!file || file->get_if<std::string>() == nullptr)
      fail_at(place, "Expected file path as string.");
    s.what = IncludeStatement{*file->get_if<std::string>()};
  } else {
    fail_here("Couldn't parse statement, expected ':' or '='.");
  }
  if (token_.type != TokenType::kNewline && token_.type != TokenType::kDedent &&
      token_.type != TokenType::kEnd)
    fail_here(fmt::format("Expected newline, got '{}'", token_.text));
  if (token_.type != TokenType::kEnd) advance();
  return s;
}

std::string Parser::parse_selector(bool scoped, bool dots_in_scope) {
  if (token_.type != TokenType::kName)
    fail_here(fmt::format("Unexpected token '{}', expected a name", without_newline(token_.text)));
  const Token first = token_;
  std::string selector;
  size_t end = first.end;
  for (bool want_name = true; want_name ? token_.type == TokenType::kName : at("/") || at(".");
       want_name = !want_name) {
    selector += token_.text;
    end = token_.end;
    advance();
  }
  skip_blanks();
  const std::vector<std::string> parts = split(selector, '/');
  bool valid = (scoped || parts.size() == 1) && is_module(parts.back());
  for (size_t i = 0; i + 1 < parts.size(); ++i)
    valid = valid && (dots_in_scope ? is_module(parts[i]) : is_identifier(parts[i]));
  const bool has_gap =
      end < first.begin || first.line_text.substr(first.begin, end - first.begin) != selector;
  if (!valid || has_gap) {
    Token place = first;
    place.begin += 1;
    fail_at(place, "Malformatted scope or selector.");
  }
  return selector;
}

std::string Parser::parse_identifier() {
  if (!is_identifier(token_.text)) fail_here("Invalid identifier name.");
  std::string name(token_.text);
  advance_and_skip();
  return name;
}

ImportStatement Parser::parse_import(bool is_from) {
  ImportStatement s;
  s.is_from = is_from;
  s.module = parse_selector(false, false);
  if (is_from) {
    if (!at("import")) fail_here(fmt::format("Expected 'import', got '{}'", token_.text));
    advance();
    s.module += "." + parse_identifier();
  }
  if (at("as")) {
    advance();
    s.alias = parse_identifier();
  }
  return s;
}

void Parser::parse_block(const std::string& scoped_selector, Statement head) {
  advance();
  while (token_.type == TokenType::kComment) advance();
  expect_newline();
  do advance();
  while (token_.type == TokenType::kComment || token_.type == TokenType::kBlank);
  if (token_.type != TokenType::kIndent)
    fail_here(fmt::format("Expected indentation. Got {} = {}.", token_type_name(token_.type),
                          without_newline(token_.text)));
  advance();
  while (token_.type == TokenType::kComment || token_.type == TokenType::kBlank) advance();
  const auto [scope, selector] = split_scope(scoped_selector);
  head.what = BlockStatement{scope, selector};
  queue_.push_back(std::move(head));
  within_block_ = true;
  while (token_.type != TokenType::kDedent) {
    Statement s;
    s.where = {tokens_.name(), token_.line};
    s.source = without_newline(token_.line_text);
    BindingStatement binding{scope, selector, parse_identifier(), {}};
    if (!at("=")) fail_here(fmt::format("Expected '=', got '{}'", without_newline(token_.text)));
    advance();
    binding.value = parse_value();
    s.what = std::move(binding);
    queue_.push_back(std::move(s));
    expect_newline();
    advance_and_skip();
  }
  within_block_ = false;
}

Value Parser::parse_value() {
  if (++depth_ > kMaxDepth) fail_here(fmt::format("nested more than {} deep", kMaxDepth));
  std::optional<Value> value = parse_container();
  if (!value) value = parse_literal();
  if (!value) value = parse_reference();
  if (!value) value = parse_macro();
  if (!value) fail_here("Unable to parse value.");
  --depth_;
  return std::move(*value);
}

std::optional<Value> Parser::parse_container() {
  if (token_.type != TokenType::kOperator) return std::nullopt;
  if (at("{") || at("(") || at("[")) return parse_items(token_.text);
  return std::nullopt;
}

Value Parser::parse_items(std::string_view open) {
  const std::string_view close = open == "{" ? "}" : open == "(" ? ")" : "]";
  advance_and_skip();
  Dict dict;
  std::map<std::string, size_t> places;  // key -> index in dict.items
  List items;
  bool saw_comma = false;
  while (!at(close)) {
    if (open == "{") {
      const Token place = token_;
      Value key = parse_value();
      if (!at(":")) fail_here("Expected ':'.");
      advance_and_skip();
      const std::string hash = dict_key(key);
      if (hash.empty()) fail_at(place, "a " + key.describe() + " cannot be a key of a dict");
      Value value = parse_value();
      const auto [found, is_new] = places.emplace(hash, dict.items.size());
      if (is_new)
        dict.items.emplace_back(std::move(key), std::move(value));
      else
        dict.items[found->second].second = std::move(value);
    } else {
      items.push_back(parse_value());
    }
    if (at(",")) {
      saw_comma = true;
      advance_and_skip();
    } else if (!at(close)) {
      fail_here(fmt::format("Expected ',' or '{}'.", close));
    }
  }
  advance_and_skip();
  if (open == "{") return dict;
  if (open == "[") return items;
  if (items.size() == 1 && !saw_comma) return std::move(items[0]);
  return Tuple{std::move(items)};
}

std::optional<Value> Parser::parse_literal() {
  const bool negative = token_.type == TokenType::kOperator && at("-");
  if (negative) advance_and_skip();
  const Token place = token_;
  try {
    if (token_.type == TokenType::kString) {
      std::vector<std::string_view> tokens;
      for (; token_.type == TokenType::kString; advance_and_skip()) tokens.push_back(token_.text);
      if (negative) throw LiteralError("a string has no negative");
      return string_literal(tokens);
    }
    if (token_.type == TokenType::kNumber) {
      Value value = number_literal(token_.text, negative);
      advance_and_skip();
      return value;
    }
    if (token_.type == TokenType::kName) {
      Value value = name_literal(token_.text);
      if (negative) throw LiteralError(fmt::format("{} has no negative", token_.text));
      advance_and_skip();
      return value;
    }
  } catch (const LiteralError& error) {
    fail_at(place, fmt::format("Failed to parse '{}': {}",
                               without_newline(place.text.substr(0, place.text.find('\n'))),
                               error.what()));
  }
  if (negative) fail_here("Unable to parse value: '-' must be followed by a number.");
  return std::nullopt;
}

std::optional<Value> Parser::parse_reference() {
  if (token_.type != TokenType::kOperator || !at("@")) return std::nullopt;
  advance();
  Reference reference;
  std::vector<std::string> parts = split(parse_selector(true, true), '/');
  reference.selector = std::move(parts.back());
  parts.pop_back();
  reference.scopes = std::move(parts);
  if (at("(")) {
    reference.call = true;
    advance_and_skip();
    if (!at(")")) fail_here("Expected ')'.");
    advance();
  }
  skip_blanks();
  return reference;
}

std::optional<Value> Parser::parse_macro() {
  if (token_.type != TokenType::kOperator || !at("%")) return std::nullopt;
  advance();
  return Macro{parse_selector(true, true)};
}

std::vector<Statement> parse(const std::string& text, const std::string& name) {
  Parser parser(text, name);
  std::vector<Statement> statements;
  while (std::optional<Statement> s = parser.next()) statements.push_back(std::move(*s));
  return statements;
}

Value parse_value(const std::string& text, const std::string& name) {
  const std::vector<Statement> statements = parse("value = " + text, name);
  if (const auto* binding =
          statements.size() == 1 ? std::get_if<BindingStatement>(&statements[0].what) : nullptr)
    return binding->value;
  throw ConfigError({name, 1}, -1, fmt::format("'{}' is not one value", text));
}

}  // namespace quintet::gin
