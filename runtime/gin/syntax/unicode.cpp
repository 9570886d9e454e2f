#include "runtime/gin/syntax/unicode.h"

namespace quintet::gin {
namespace {

bool between(char32_t c, char32_t low, char32_t high) { return low <= c && c <= high; }

// Length of a sequence by its first byte; 0 for a byte that cannot start one.
size_t sequence_length(unsigned char first) {
  if (first < 0x80) return 1;
  if (first < 0xC2) return 0;
  if (first < 0xE0) return 2;
  if (first < 0xF0) return 3;
  return first < 0xF5 ? 4 : 0;
}

bool is_format_character(char32_t c) {  // general category Cf
  return c == 0xAD || between(c, 0x600, 0x605) || c == 0x61C || c == 0x6DD || c == 0x70F ||
         between(c, 0x890, 0x891) || c == 0x8E2 || c == 0x180E || between(c, 0x200B, 0x200F) ||
         between(c, 0x202A, 0x202E) || between(c, 0x2060, 0x206F) || c == 0xFEFF ||
         between(c, 0xFFF9, 0xFFFB) || c == 0x110BD || c == 0x110CD ||
         between(c, 0x1BCA0, 0x1BCA3) || between(c, 0x1D173, 0x1D17A) ||
         between(c, 0xE0000, 0xE007F);
}

}  // namespace

char32_t next_code_point(std::string_view text, size_t& i) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char first = byte(i);
  const size_t length = sequence_length(first);
  if (length <= 1 || i + length > text.size()) return byte(i++);
  char32_t c = first & (0xFF >> (length + 1));
  for (size_t k = 1; k < length; ++k) {
    if ((byte(i + k) & 0xC0) != 0x80) return byte(i++);
    c = (c << 6) | (byte(i + k) & 0x3F);
  }
  i += length;
  return c;
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) {
    out += static_cast<char>(static_cast<unsigned char>(byte));
  };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | (c >> 6));
  } else {
    if (c < 0x10000) {
      put(0xE0 | (c >> 12));
    } else {
      put(0xF0 | (c >> 18));
      put(0x80 | ((c >> 12) & 0x3F));
    }
    put(0x80 | ((c >> 6) & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

size_t find_invalid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const size_t length = sequence_length(static_cast<unsigned char>(text[i]));
    const char32_t c = next_code_point(text, i);
    const bool overlong = (length == 3 && c < 0x800) || (length == 4 && c < 0x10000);
    if (length == 0 || i - begin != length || overlong || between(c, 0xD800, 0xDFFF) ||
        c > 0x10FFFF)
      return begin;
  }
  return std::string_view::npos;
}

size_t count_code_points(std::string_view text) {
  size_t n = 0;
  for (size_t i = 0; i < text.size(); ++n) next_code_point(text, i);
  return n;
}

bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  if (c <= 0xA0) return false;
  return !(is_format_character(c) || c == 0x1680 || between(c, 0x2000, 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000 || between(c, 0xD800, 0xF8FF) ||
           between(c, 0xFDD0, 0xFDEF) || between(c, 0xE0080, 0x10FFFF) || (c & 0xFFFE) == 0xFFFE);
}

bool is_space(char32_t c) {
  return between(c, 0x09, 0x0D) || between(c, 0x1C, 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || between(c, 0x2000, 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_line_break(char32_t c) {
  return between(c, 0x0A, 0x0D) || between(c, 0x1C, 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool is_word(char32_t c) {
  if (c < 0x80)
    return between(c, 'a', 'z') || between(c, 'A', 'Z') || between(c, '0', '9') || c == '_';
  if (c < 0xC0) return c == 0xAA || c == 0xB5 || c == 0xBA;
  return is_printable(c) && c != 0xD7 && c != 0xF7 && !between(c, 0x2010, 0x206F) &&
         !between(c, 0x2190, 0x2BFF) && !between(c, 0x3001, 0x3004) &&
         !between(c, 0x3008, 0x3020) && !between(c, 0x1F000, 0x1FAFF);
}

}  // namespace quintet::gin
