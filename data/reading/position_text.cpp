#include "data/reading/position_text.h"

#include "runtime/base/check.h"

namespace quintet::data {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr char kFill = '=';

std::string base64(std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k)
      text += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63] : kFill;
  }
  return text;
}

[[noreturn]] void damaged(std::string_view text) {
  fail(ExitCode::kData, "data position: '{}' is damaged", text.substr(0, 80));
}

std::string from_base64(std::string_view text) {
  std::string bytes;
  uint32_t bits = 0;
  int held = 0;
  const std::string_view digits = text.substr(0, text.find(kFill));
  if (text.size() % 4 != 0 || text.size() - digits.size() > 2 ||
      text.find_first_not_of(kFill, digits.size()) != std::string_view::npos)
    damaged(text);
  for (char c : digits) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) damaged(text);
    bits = bits << 6 | static_cast<uint32_t>(digit);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes += static_cast<char>(bits >> held & 255);
  }
  return bytes;
}

}  // namespace

std::string position_text(const Position& position) {
  std::string bytes;
  for (const int64_t value : position) {
    uint64_t left = static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63);
    for (; left >= 128; left >>= 7) bytes += static_cast<char>(left | 128);
    bytes += static_cast<char>(left);
  }
  return base64(bytes);
}

Position position_from_text(std::string_view text) {
  Position position;
  uint64_t value = 0;
  int shift = 0;
  for (const char c : from_base64(text)) {
    if (shift > 63) damaged(text);
    value |= static_cast<uint64_t>(c & 127) << shift;
    shift += 7;
    if (c & 128) continue;
    position.push_back(static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1));
    value = 0;
    shift = 0;
  }
  if (shift != 0) damaged(text);
  return position;
}

}  // namespace quintet::data
