#include "data/metrics/text.h"

#include <unicode/ucasemap.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>

#include "runtime/base/check.h"

namespace quintet::data::metrics {
namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

uint32_t category(char32_t c) { return U_GET_GC_MASK(static_cast<UChar32>(c)); }

/// Places of the pieces of str.split().
template <typename Text, typename IsSpace>
std::vector<Text> split_at(Text text, IsSpace space_bytes) {
  std::vector<Text> pieces;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size();) {
    const size_t space = i < text.size() ? space_bytes(text.substr(i)) : 1;
    if (space == 0) {
      ++i;
      continue;
    }
    if (i > begin) pieces.push_back(text.substr(begin, i - begin));
    begin = i += space;
  }
  return pieces;
}

/// Bytes of the white space at the start of text, 0 if there is none.
size_t leading_space(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return is_space(first) ? 1 : 0;
  if (first < 0xC2 || first > 0xE3) return 0;  // no white space above U+3000
  int32_t length = 0;
  UChar32 c;
  U8_NEXT(reinterpret_cast<const uint8_t*>(text.data()), length, static_cast<int32_t>(text.size()),
          c);
  return c >= 0 && is_space(static_cast<char32_t>(c)) ? static_cast<size_t>(length) : 0;
}

}  // namespace

std::u32string code_points(std::string_view text) {
  std::u32string points;
  points.reserve(text.size());
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  for (size_t i = 0; i < text.size();) {
    UChar32 c;
    U8_NEXT_UNSAFE(bytes, i, c);
    points.push_back(static_cast<char32_t>(c));
  }
  return points;
}

std::string utf8(std::u32string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (const char32_t c : text) {
    char buffer[U8_MAX_LENGTH];
    int32_t length = 0;
    U8_APPEND_UNSAFE(buffer, length, static_cast<UChar32>(c));
    bytes.append(buffer, static_cast<size_t>(length));
  }
  return bytes;
}

std::string lower(std::string_view text) {
  std::string out(text);
  if (is_ascii(text)) {
    for (char& c : out)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
    return out;
  }
  UErrorCode status = U_ZERO_ERROR;
  // No locale: the Turkish and Lithuanian rules do not apply, as in Python.
  static const std::unique_ptr<UCaseMap, void (*)(UCaseMap*)> map(ucasemap_open("", 0, &status),
                                                                  ucasemap_close);
  const auto size = static_cast<int32_t>(text.size());
  out.resize(3 * text.size());  // the largest growth is 3/2, of U+0130
  const int32_t length = ucasemap_utf8ToLower(
      map.get(), out.data(), static_cast<int32_t>(out.size()), text.data(), size, &status);
  QT_CHECK_AS(ExitCode::kEnvironment, U_SUCCESS(status), "ICU: lower case: {}",
              u_errorName(status));
  out.resize(static_cast<size_t>(length));
  return out;
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_word(char32_t c) {
  if (c < 0x80)
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_';
  return (category(c) & U_GC_L_MASK) != 0 ||
         u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_NUMERIC_TYPE) != U_NT_NONE;
}

bool is_number(char32_t c) { return (category(c) & U_GC_N_MASK) != 0; }
bool is_punctuation(char32_t c) { return (category(c) & U_GC_P_MASK) != 0; }
bool is_symbol(char32_t c) { return (category(c) & U_GC_S_MASK) != 0; }
bool is_ascii_punctuation(char32_t c) {
  return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) ||
         (c >= 0x7B && c <= 0x7E);
}

std::vector<std::string_view> split(std::string_view text) { return split_at(text, leading_space); }

std::vector<std::u32string_view> split(std::u32string_view text) {
  return split_at(text, [](std::u32string_view rest) { return size_t{is_space(rest[0])}; });
}

std::u32string_view rstrip(std::u32string_view text) {
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::u32string_view strip(std::u32string_view text) {
  text = rstrip(text);
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  return text;
}

std::optional<int64_t> parse_index(std::u32string_view text) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max() / 16;
  int64_t value = 0;
  bool after_digit = false;
  for (const char32_t c : text) {
    const int digit = u_charDigitValue(static_cast<UChar32>(c));
    if (digit < 0 && !(c == '_' && after_digit)) return std::nullopt;
    after_digit = digit >= 0;
    if (after_digit) value = std::min(10 * value + digit, kLargest);
  }
  if (!after_digit) return std::nullopt;
  return value;
}

std::optional<double> parse_float(std::string_view text) {
  const std::u32string points = code_points(text);
  std::string number;
  char32_t before = 0;
  const std::u32string_view stripped = strip(points);
  for (size_t i = 0; i < stripped.size(); ++i) {
    const char32_t c = stripped[i];
    const int digit = u_charDigitValue(static_cast<UChar32>(c));
    const bool joins = c == '_' && i + 1 < stripped.size() &&
                       u_charDigitValue(static_cast<UChar32>(before)) >= 0 &&
                       u_charDigitValue(static_cast<UChar32>(stripped[i + 1])) >= 0;
    before = c;
    if (joins) continue;
    if (digit < 0 && c >= 0x80) return std::nullopt;
    number += digit >= 0 ? static_cast<char>('0' + digit)
                         : static_cast<char>(c | 0x20 * (c >= 'A' && c <= 'Z'));
  }
  std::string_view magnitude = number;
  if (magnitude.starts_with('+') || magnitude.starts_with('-')) magnitude.remove_prefix(1);
  const bool word = magnitude == "inf" || magnitude == "infinity" || magnitude == "nan";
  // strtod would also take hexadecimal numbers and nan(...).
  if (!word &&
      (magnitude.empty() || magnitude.find_first_not_of("0123456789.e+-") != std::string::npos))
    return std::nullopt;
  if (!word && magnitude[0] != '.' && !(magnitude[0] >= '0' && magnitude[0] <= '9'))
    return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(number.c_str(), &end);
  if (end != number.c_str() + number.size()) return std::nullopt;
  return value;
}

}  // namespace quintet::data::metrics
