#include "data/vocabularies/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace quintet::data {
namespace {

/// Bytes of the well-formed sequence of which text, not empty, has the start or all; 0 if none.
size_t utf8_begun(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  // The second byte rules out overlong forms, surrogates and values above U+10FFFF.
  const uint8_t lowest = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t highest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (text.size() > 1 && (byte(1) < lowest || byte(1) > highest)) return 0;
  for (size_t i = 2; i < std::min(length, text.size()); ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  return length;
}

}  // namespace

size_t utf8_sequence(std::string_view text) {
  const size_t length = text.empty() ? 0 : utf8_begun(text);
  return length <= text.size() ? length : 0;
}

void take_characters(std::string& bytes, std::string& text, std::string_view wrong) {
  size_t at = 0;
  while (at < bytes.size()) {
    const std::string_view rest = std::string_view(bytes).substr(at);
    const size_t length = utf8_begun(rest);
    if (length > rest.size()) break;
    text += length > 0 ? rest.substr(0, length) : wrong;
    at += std::max<size_t>(1, length);
  }
  bytes.erase(0, at);
}

size_t find_bad_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t block;
    if (at + sizeof block <= text.size()) {  // eight ASCII bytes at once
      std::memcpy(&block, text.data() + at, sizeof block);
      if ((block & 0x8080808080808080u) == 0) {
        at += sizeof block;
        continue;
      }
    }
    const size_t length = utf8_sequence(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::string_view::npos;
}

std::string drop_bad_utf8(std::string_view bytes) {
  std::string kept;
  kept.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t bad = find_bad_utf8(bytes);
    kept += bytes.substr(0, bad);
    if (bad == std::string_view::npos) break;
    bytes.remove_prefix(bad + 1);
  }
  return kept;
}

std::vector<int32_t> codepoints_of(std::string_view text) {
  std::vector<int32_t> codepoints;
  codepoints.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_sequence(text);
    if (length > 0) {
      int32_t codepoint = static_cast<uint8_t>(text[0]);
      if (length > 1) codepoint &= 0x7F >> length;
      for (size_t i = 1; i < length; ++i) codepoint = codepoint << 6 | (text[i] & 0x3F);
      codepoints.push_back(codepoint);
    }
    text.remove_prefix(length > 0 ? length : 1);
  }
  return codepoints;
}

void append_utf8(std::string& text, int32_t codepoint) {
  const auto tail = [&](int shift) {
    text.push_back(static_cast<char>(0x80 | (codepoint >> shift & 0x3F)));
  };
  if (codepoint < 0 || codepoint > 0x10FFFF || (codepoint >= 0xD800 && codepoint < 0xE000)) return;
  if (codepoint < 0x80) {
    text.push_back(static_cast<char>(codepoint));
  } else if (codepoint < 0x800) {
    text.push_back(static_cast<char>(0xC0 | codepoint >> 6));
    tail(0);
  } else if (codepoint < 0x10000) {
    text.push_back(static_cast<char>(0xE0 | codepoint >> 12));
    tail(6);
    tail(0);
  } else {
    text.push_back(static_cast<char>(0xF0 | codepoint >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace quintet::data
