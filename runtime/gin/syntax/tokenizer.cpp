#include "runtime/gin/syntax/tokenizer.h"

#include <algorithm>
#include <array>

#include "runtime/gin/syntax/error.h"
#include "runtime/gin/syntax/unicode.h"

namespace quintet::gin {
namespace {

constexpr size_t kTab = 8;
constexpr size_t kMaxIndents = 100;  // Python's own limit

constexpr auto kOperators = std::to_array<std::string_view>(
    {"**=", "//=", ">>=", "<<=", "...", "!=", "%=", "&=", "*=", "**", "+=", "-=",
     "->",  "/=",  "//",  ":=",  "<=",  "<<", "==", ">=", ">>", "@=", "^=", "|=",
     "%",   "&",   "(",   ")",   "*",   "+",  ",",  "-",  ".",  "/",  ":",  ";",
     "<",   "=",   ">",   "@",   "[",   "]",  "^",  "{",  "|",  "}",  "~"});

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_octal(char c) { return c >= '0' && c <= '7'; }
bool is_binary(char c) { return c == '0' || c == '1'; }

/// End of digits joined by single underscores that start at i, or i if there are none.
template <typename Is>
size_t digits(std::string_view s, size_t i, Is is) {
  if (i >= s.size() || !is(s[i])) return i;
  for (++i; i < s.size();) {
    if (is(s[i])) {
      ++i;
    } else if (s[i] == '_' && i + 1 < s.size() && is(s[i + 1])) {
      i += 2;
    } else {
      break;
    }
  }
  return i;
}

size_t exponent(std::string_view s, size_t i) {
  if (i >= s.size() || (s[i] != 'e' && s[i] != 'E')) return i;
  size_t k = i + 1;
  if (k < s.size() && (s[k] == '+' || s[k] == '-')) ++k;
  const size_t end = digits(s, k, is_digit);
  return end == k ? i : end;
}

size_t radix_integer(std::string_view s, size_t i) {
  if (i + 2 >= s.size() || s[i] != '0') return i;
  const char kind = static_cast<char>(s[i + 1] | 0x20);
  const size_t first = i + 2 + (s[i + 2] == '_' ? 1 : 0);
  size_t end = first;
  if (kind == 'x') end = digits(s, first, is_hex);
  if (kind == 'o') end = digits(s, first, is_octal);
  if (kind == 'b') end = digits(s, first, is_binary);
  return end == first ? i : end;
}

/// End of the number that starts at i, or i. Leading zeros, as in 012, end an integer early.
size_t scan_number(std::string_view s, size_t i) {
  if (const size_t end = radix_integer(s, i); end != i) return end;
  const size_t whole = digits(s, i, is_digit);
  size_t end = whole;
  bool is_float = false;
  if (end < s.size() && s[end] == '.' &&
      (whole != i || (end + 1 < s.size() && is_digit(s[end + 1])))) {
    end = digits(s, end + 1, is_digit);
    is_float = true;
  }
  if (end == i) return i;
  if (const size_t power = exponent(s, end); power != end) {
    end = power;
    is_float = true;
  }
  if (end < s.size() && (s[end] == 'j' || s[end] == 'J')) return end + 1;
  if (is_float || s[i] != '0') return end;
  size_t zeros = digits(s, i, [](char c) { return c == '0'; });
  return zeros;
}

/// Where the quote stands behind a string prefix (r, b, u, f, br, fr in any case), or npos.
size_t string_quote(std::string_view s, size_t i) {
  std::string prefix;
  size_t k = i;
  while (k < s.size() && k - i < 2 &&
         std::string_view("rRbBuUfF").find(s[k]) != std::string_view::npos)
    prefix += static_cast<char>(s[k++] | 0x20);
  if (k >= s.size() || (s[k] != '\'' && s[k] != '"')) return std::string_view::npos;
  if (prefix.size() < 2) return k;
  std::sort(prefix.begin(), prefix.end());
  return prefix == "br" || prefix == "fr" ? k : std::string_view::npos;
}

/// Without byte order mark, line ends as \n.
std::string normalize_lines(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    out += text[i] == '\r' ? '\n' : text[i];
  }
  return out;
}

}  // namespace

std::string_view token_type_name(TokenType type) {
  constexpr std::array<std::string_view, 11> kNames = {
      "NAME",    "NUMBER", "STRING", "OP",         "NEWLINE",  "NL",
      "COMMENT", "INDENT", "DEDENT", "ERRORTOKEN", "ENDMARKER"};
  return kNames[static_cast<size_t>(type)];
}

Tokenizer::Tokenizer(std::string_view text, std::string name)
    : text_(normalize_lines(text)), name_(std::move(name)) {
  QT_CHECK(std::ssize(text_) <= kMaxGinBytes,
           "{}: {} bytes are too many for a gin file; the limit is {}", name_, text_.size(),
           kMaxGinBytes);
  const size_t bad = std::min(find_invalid_utf8(text_), text_.find('\0'));
  if (bad == std::string::npos) return;
  const auto line =
      1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(bad), '\n');
  throw ConfigError({name_, static_cast<int>(line)}, -1,
                    fmt::format("byte 0x{:02x} at offset {} is not text; expected UTF-8",
                                static_cast<unsigned char>(text_[bad]), bad));
}

void Tokenizer::fail_here(const std::string& message, int line, size_t column) const {
  throw ConfigError({name_, line}, static_cast<int>(column), message);
}

void Tokenizer::read_line() {
  const size_t end = text_.find('\n', next_line_);
  const size_t length = end == std::string::npos ? std::string::npos : end + 1 - next_line_;
  line_ = std::string_view(text_).substr(next_line_, length);
  next_line_ += line_.size();
  pos_ = 0;
  ++line_number_;
}

void Tokenizer::emit(TokenType type, size_t begin, size_t end) {
  ready_.push_back({type, line_.substr(begin, end - begin), line_number_, begin, end, line_});
}

Token Tokenizer::next() {
  while (ready_.empty()) {
    if (finished_) return {TokenType::kEnd, {}, line_number_, 0, 0, {}};
    if (pos_ < line_.size()) {
      scan_token();
      continue;
    }
    const std::string_view before = line_;
    read_line();
    const bool within = depth_ != 0 || continued_;
    if (line_.empty()) {
      if (within)
        fail_here("end of file within a statement; a bracket is open, or a backslash ends the file",
                  line_number_, 0);
      line_ = before;
      finish();
    } else if (!within) {
      start_statement();
    } else {
      continued_ = false;
    }
  }
  const Token token = ready_.front();
  ready_.pop_front();
  return token;
}

void Tokenizer::start_statement() {
  size_t column = 0;
  for (; pos_ < line_.size(); ++pos_) {
    if (line_[pos_] == ' ') {
      ++column;
    } else if (line_[pos_] == '\t') {
      column = (column / kTab + 1) * kTab;
    } else if (line_[pos_] == '\f') {
      column = 0;
    } else {
      break;
    }
  }
  if (pos_ == line_.size()) return;  // the file ends with blanks
  if (line_[pos_] == '#' || line_[pos_] == '\n') {
    const size_t end = line_.size() - (line_.ends_with('\n') ? 1 : 0);
    if (line_[pos_] == '#') emit(TokenType::kComment, pos_, end);
    emit(TokenType::kBlank, end, line_.size());
    pos_ = line_.size();
    return;
  }
  if (column > indents_.back()) {
    if (indents_.size() >= kMaxIndents) fail_here("indented too deeply", line_number_, pos_);
    indents_.push_back(column);
    emit(TokenType::kIndent, 0, pos_);
  }
  while (column < indents_.back()) {
    if (std::find(indents_.begin(), indents_.end(), column) == indents_.end())
      fail_here("unindent does not match any outer indentation level", line_number_, pos_);
    indents_.pop_back();
    emit(TokenType::kDedent, pos_, pos_);
  }
}

void Tokenizer::scan_token() {
  while (pos_ < line_.size() && (line_[pos_] == ' ' || line_[pos_] == '\t' || line_[pos_] == '\f'))
    ++pos_;
  if (pos_ == line_.size()) return;
  const size_t begin = pos_;
  const char c = line_[begin];
  const auto take = [&](TokenType type, size_t end) {
    emit(type, begin, end);
    pos_ = end;
  };
  if (c == '\n') return take(depth_ > 0 ? TokenType::kBlank : TokenType::kNewline, begin + 1);
  if (c == '#') return take(TokenType::kComment, line_.size() - (line_.ends_with('\n') ? 1 : 0));
  if (c == '\\' && line_.substr(begin + 1) == "\n") {
    continued_ = true;
    pos_ = line_.size();
    return;
  }
  if (const size_t end = scan_number(line_, begin); end != begin)
    return take(TokenType::kNumber, end);
  if (const size_t quote = string_quote(line_, begin); quote != std::string_view::npos)
    return scan_string(begin, quote);
  size_t end = begin;
  for (size_t i = begin; i < line_.size() && is_word(next_code_point(line_, i)); end = i) {
  }
  if (end != begin) return take(TokenType::kName, end);
  for (std::string_view op : kOperators) {
    if (!line_.substr(begin).starts_with(op)) continue;
    if (c == '(' || c == '[' || c == '{') ++depth_;
    if (c == ')' || c == ']' || c == '}') --depth_;
    return take(TokenType::kOperator, begin + op.size());
  }
  end = begin;
  next_code_point(line_, end);
  take(TokenType::kError, end);
}

void Tokenizer::scan_string(size_t begin, size_t quote) {
  const char q = line_[quote];
  const bool triple = line_.substr(quote).starts_with(std::string(3, q));
  const size_t line_start = next_line_ - line_.size();
  const size_t first = line_start + quote + (triple ? 3 : 1);
  size_t end = std::string::npos;
  for (size_t i = first; i < text_.size(); ++i) {
    if (text_[i] == '\\') {
      ++i;
    } else if (text_[i] == '\n' && !triple) {
      break;
    } else if (text_[i] == q && (!triple || text_.compare(i, 3, std::string(3, q)) == 0)) {
      end = i + (triple ? 3 : 1);
      break;
    }
  }
  if (end == std::string::npos || end > text_.size()) {
    if (triple) fail_here("end of file within a triple-quoted string", line_number_, begin);
    if (quote != begin) {  // as Python: a prefix without its string is a name
      emit(TokenType::kName, begin, quote);
      pos_ = quote;
      return;
    }
    emit(TokenType::kError, quote, quote + 1);
    pos_ = quote + 1;
    return;
  }
  Token token{TokenType::kString,
              std::string_view(text_).substr(line_start + begin, end - line_start - begin),
              line_number_,
              begin,
              end - line_start,
              line_};
  while (next_line_ < end) read_line();
  pos_ = end - (next_line_ - line_.size());
  ready_.push_back(token);
}

void Tokenizer::finish() {
  const size_t first = line_.find_first_not_of(" \t\f\n");
  const bool is_comment = first != std::string_view::npos && line_[first] == '#';
  const bool is_blank = first == std::string_view::npos;
  if (!is_blank && !line_.ends_with('\n') && !is_comment)
    ready_.push_back(
        {TokenType::kNewline, {}, line_number_ - 1, line_.size(), line_.size(), line_});
  for (; indents_.size() > 1; indents_.pop_back())
    ready_.push_back({TokenType::kDedent, {}, line_number_, 0, 0, {}});
  finished_ = true;
}

}  // namespace quintet::gin
