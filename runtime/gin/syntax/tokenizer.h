#pragma once
// Cuts text into the tokens of Python's tokenizer, which is what gin's grammar is made of:
// indentation counts, lines end statements except within brackets, `#` starts a comment.
//
//   Tokenizer tokens(text, "a.gin");
//   for (Token t = tokens.next(); t.type != TokenType::kEnd; t = tokens.next()) ...
//
// Lazy, so that an error further down does not hide one that the parser finds first.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::gin {

inline constexpr int64_t kMaxGinBytes = int64_t{64} << 20;  // of one file

enum class TokenType {
  kName,
  kNumber,
  kString,
  kOperator,
  kNewline,
  kBlank,
  kComment,
  kIndent,
  kDedent,
  kError,
  kEnd
};
std::string_view token_type_name(TokenType type);  // Python's: NAME, NUMBER, ...

struct Token {
  TokenType type = TokenType::kEnd;
  std::string_view text;       // views of the tokenizer's text
  int line = 0;                // where it starts, counted from 1
  size_t begin = 0, end = 0;   // bytes from the start of `line_text`; end only for one-line tokens
  std::string_view line_text;  // the physical line it starts in, with its end
};

class Tokenizer {
 public:
  /// `name` is for messages. Throws ConfigError for text that is not UTF-8, or holds a NUL.
  Tokenizer(std::string_view text, std::string name);
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Throws ConfigError for bad indentation and for strings or brackets left open at the end.
  Token next();
  const std::string& name() const { return name_; }

 private:
  void read_line();
  void start_statement();  // indentation of the line, or a blank line
  void scan_token();
  void scan_string(size_t begin, size_t quote);
  void finish();
  void emit(TokenType type, size_t begin, size_t end);
  [[noreturn]] void fail_here(const std::string& message, int line, size_t column) const;

  std::string text_;
  std::string name_;
  size_t next_line_ = 0;   // offset of the line to read next
  std::string_view line_;  // the current physical line, with its end
  int line_number_ = 0;
  size_t pos_ = 0;          // in line_
  int depth_ = 0;           // open brackets
  bool continued_ = false;  // the previous line ended with a backslash
  bool finished_ = false;
  std::vector<size_t> indents_ = {0};
  std::deque<Token> ready_;
};

}  // namespace quintet::gin
