#include "runtime/gin/syntax/literal.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>

#include "runtime/gin/syntax/unicode.h"

namespace quintet::gin {
namespace {

constexpr size_t kMaxIntegerDigits = 4300;  // Python's own limit on decimal literals

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
}

/// Decimal digits of a number in another base, by schoolbook arithmetic on limbs of 9 digits.
std::string to_decimal(std::string_view digits, uint32_t base) {
  constexpr uint64_t kLimb = 1'000'000'000;
  std::vector<uint64_t> limbs = {0};
  for (char c : digits) {
    uint64_t carry = static_cast<uint64_t>(digit_value(c));
    for (uint64_t& limb : limbs) {
      limb = limb * base + carry;
      carry = limb / kLimb;
      limb %= kLimb;
    }
    if (carry != 0) limbs.push_back(carry);
  }
  std::string out = std::to_string(limbs.back());
  for (size_t i = limbs.size() - 1; i-- > 0;) out += fmt::format("{:09}", limbs[i]);
  return out;
}

Value integer(std::string_view digits, int base, bool negative) {
  if (digits.size() > kMaxIntegerDigits)
    throw LiteralError(
        fmt::format("integer of {} digits; the limit is {}", digits.size(), kMaxIntegerDigits));
  uint64_t magnitude = 0;
  const auto result =
      std::from_chars(digits.data(), digits.data() + digits.size(), magnitude, base);
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  if (result.ec == std::errc() && magnitude <= kMax + (negative ? 1 : 0))
    return static_cast<int64_t>(negative ? 0 - magnitude : magnitude);
  return BigInt{(negative ? "-" : "") + to_decimal(digits, static_cast<uint32_t>(base))};
}

double floating(const std::string& text) { return std::strtod(text.c_str(), nullptr); }

/// One string token taken apart.
class StringReader {
 public:
  StringReader(std::string_view token, std::string& out) : out_(out) {
    size_t i = 0;
    for (; token[i] != '\'' && token[i] != '"'; ++i) {
      const char c = static_cast<char>(token[i] | 0x20);
      is_raw_ |= c == 'r';
      is_bytes_ |= c == 'b';
      if (c == 'f') throw LiteralError("f-strings are not literals");
    }
    const size_t quotes =
        token.size() - i >= 6 && token.compare(i, 3, std::string(3, token[i])) == 0 ? 3 : 1;
    body_ = token.substr(i + quotes, token.size() - i - 2 * quotes);
  }
  bool is_bytes() const { return is_bytes_; }

  void read() {
    if (is_bytes_ &&
        std::any_of(body_.begin(), body_.end(), [](char c) { return (c & 0x80) != 0; }))
      throw LiteralError("bytes can only contain ASCII literal characters");
    if (is_raw_) {
      out_ += body_;
      return;
    }
    for (size_t i = 0; i < body_.size();) {
      if (body_[i] == '\\')
        i = escape(i + 1);
      else
        out_ += body_[i++];
    }
  }

 private:
  // i: behind the backslash; returns the offset behind the escape.
  size_t escape(size_t i) {
    constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
    const char c = body_[i];
    if (c == '\n') return i + 1;
    if (const size_t k = kFrom.find(c); k != std::string_view::npos) {
      out_ += kTo[k];
      return i + 1;
    }
    if (c >= '0' && c <= '7') {
      char32_t value = 0;
      size_t end = i;
      for (; end < body_.size() && end < i + 3 && body_[end] >= '0' && body_[end] <= '7'; ++end)
        value = value * 8 + static_cast<char32_t>(body_[end] - '0');
      put(is_bytes_ ? value & 0xFF : value);
      return end;
    }
    if (c == 'x') return hexadecimal(i, 2);
    if (c == 'u' && !is_bytes_) return hexadecimal(i, 4);
    if (c == 'U' && !is_bytes_) return hexadecimal(i, 8);
    if (c == 'N' && !is_bytes_)
      throw LiteralError("\\N{...} is not supported; write the character, or \\uXXXX");
    out_ += '\\';  // unknown escapes stay as they are
    return i;
  }

  size_t hexadecimal(size_t i, size_t count) {
    char32_t value = 0;
    for (size_t k = i + 1; k <= i + count; ++k) {
      const int digit = k < body_.size() ? digit_value(body_[k]) : 99;
      if (digit > 15)
        throw LiteralError(fmt::format("\\{} needs {} hexadecimal digits", body_[i], count));
      value = value * 16 + static_cast<char32_t>(digit);
    }
    if (value > 0x10FFFF) throw LiteralError("illegal Unicode character (beyond U+10FFFF)");
    put(value);
    return i + 1 + count;
  }

  void put(char32_t c) {
    if (is_bytes_)
      out_ += static_cast<char>(static_cast<unsigned char>(c));
    else
      append_utf8(out_, c);
  }

  std::string& out_;
  std::string_view body_;
  bool is_raw_ = false, is_bytes_ = false;
};

}  // namespace

Value number_literal(std::string_view token, bool negative) {
  std::string text;
  for (char c : token)
    if (c != '_') text += c;
  const char kind = text.size() > 2 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '\0';
  if (kind == 'x') return integer(std::string_view(text).substr(2), 16, negative);
  if (kind == 'o') return integer(std::string_view(text).substr(2), 8, negative);
  if (kind == 'b') return integer(std::string_view(text).substr(2), 2, negative);
  const double sign = negative ? -1.0 : 1.0;
  if (text.back() == 'j' || text.back() == 'J') {
    text.pop_back();
    return Complex{negative ? -0.0 : 0.0, sign * floating(text)};
  }
  if (text.find_first_of(".eE") != std::string::npos) return sign * floating(text);
  return integer(text, 10, negative);
}

Value name_literal(std::string_view text) {
  if (text == "True") return true;
  if (text == "False") return false;
  if (text == "None") return None{};
  throw LiteralError(fmt::format(
      "'{0}' is not a value; strings need quotes ('{0}'), references an @, macros a %", text));
}

Value string_literal(std::span<const std::string_view> tokens) {
  std::string out;
  bool is_bytes = false;
  for (size_t i = 0; i < tokens.size(); ++i) {
    StringReader reader(tokens[i], out);
    if (i > 0 && reader.is_bytes() != is_bytes)
      throw LiteralError("cannot mix bytes and str literals");
    is_bytes = reader.is_bytes();
    reader.read();
  }
  if (is_bytes) return Bytes{std::move(out)};
  return out;
}

}  // namespace quintet::gin
