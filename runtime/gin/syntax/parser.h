#pragma once
// Gin's grammar: text to statements, without knowing what the names mean.
//
//   Parser parser(text, "run.gin");
//   while (std::optional<Statement> s = parser.next()) ...
//
// Errors are ConfigError with file, line and column, as gin-config's SyntaxError has them. Brackets
// may nest kMaxDepth deep.

#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/gin/syntax/tokenizer.h"
#include "runtime/gin/syntax/value.h"

namespace quintet::gin {

inline constexpr int kMaxDepth = 200;

/// scope/selector.arg = value; a macro NAME = value has no arg.
struct BindingStatement {
  std::string scope, selector, arg;
  Value value;
};
/// scope/selector: the head of a block; its bindings follow as statements of their own.
struct BlockStatement {
  std::string scope, selector;
};
struct ImportStatement {
  std::string module;  // `from a import b` has the module a.b
  bool is_from = false;
  std::string alias;  // empty: none
  std::string format() const;
  /// The name it puts into the file: the alias, b of `from a import b`, a of `import a.b`.
  std::string bound_name() const;
  bool operator==(const ImportStatement&) const = default;
};
struct IncludeStatement {
  std::string file;
};
struct Statement {
  std::variant<BindingStatement, BlockStatement, ImportStatement, IncludeStatement> what;
  Location where;
  std::string source;  // the line, for messages
};

class Parser {
 public:
  Parser(std::string_view text, std::string name);
  std::optional<Statement> next();
  Value parse_value();

 private:
  void advance();
  void advance_and_skip();
  void skip_blanks();
  bool at(std::string_view text) const { return token_.text == text; }
  [[noreturn]] void fail_at(const Token& token, const std::string& message) const;
  [[noreturn]] void fail_here(const std::string& message) const { fail_at(token_, message); }
  void expect_newline();

  std::string parse_selector(bool scoped, bool dots_in_scope);
  std::string parse_identifier();
  ImportStatement parse_import(bool is_from);
  void parse_block(const std::string& scoped_selector, Statement head);
  std::optional<Value> parse_container();
  Value parse_items(std::string_view open);
  std::optional<Value> parse_literal();
  std::optional<Value> parse_reference();
  std::optional<Value> parse_macro();

  Tokenizer tokens_;
  Token token_;
  bool within_block_ = false;
  int depth_ = 0;
  std::deque<Statement> queue_;
};

std::vector<Statement> parse(const std::string& text, const std::string& name);
/// One value and nothing else, e.g. "[1, @x()]".
Value parse_value(const std::string& text, const std::string& name = "value");

/// "a/b/c.d" -> {"a/b", "c.d"}
std::pair<std::string, std::string> split_scope(const std::string& scoped);
std::vector<std::string> split(const std::string& text, char separator);
std::string join(const std::vector<std::string>& parts, std::string_view separator);

}  // namespace quintet::gin
