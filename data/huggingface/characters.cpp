#include "data/huggingface/characters.h"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>

#include "data/vocabularies/utf8.h"

namespace quintet::data {
namespace {

UChar32 first_character(std::string_view text, int32_t& size) {
  UChar32 c = 0;
  size = 0;
  U8_NEXT(reinterpret_cast<const uint8_t*>(text.data()), size, static_cast<int32_t>(text.size()),
          c);
  return c;
}

UChar32 last_character(std::string_view text, int32_t& begin) {
  UChar32 c = 0;
  begin = static_cast<int32_t>(text.size());
  U8_PREV(reinterpret_cast<const uint8_t*>(text.data()), 0, begin, c);
  return c;
}

bool is_space(UChar32 c, Spaces spaces) {
  return c >= 0 && (u_isUWhiteSpace(c) || (spaces == Spaces::python && c >= 0x1c && c <= 0x1f));
}

bool is_word(UChar32 c) {
  constexpr uint32_t kWord = U_GC_L_MASK | U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return c >= 0 && ((U_GET_GC_MASK(c) & kWord) != 0 || u_hasBinaryProperty(c, UCHAR_ALPHABETIC) ||
                    u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL));
}

}  // namespace

size_t spaces_at_start(std::string_view text, Spaces spaces) {
  size_t end = 0;
  for (int32_t size = 0; end < text.size(); end += static_cast<size_t>(size))
    if (!is_space(first_character(text.substr(end), size), spaces)) break;
  return end;
}

size_t spaces_at_end(std::string_view text, Spaces spaces) {
  size_t end = text.size();
  for (int32_t begin = 0; end > 0; end = static_cast<size_t>(begin))
    if (!is_space(last_character(text.substr(0, end), begin), spaces)) break;
  return text.size() - end;
}

bool starts_with_word(std::string_view text) {
  int32_t size = 0;
  return !text.empty() && is_word(first_character(text, size));
}

bool ends_with_word(std::string_view text) {
  int32_t begin = 0;
  return !text.empty() && is_word(last_character(text, begin));
}

size_t character_size(std::string_view text) { return std::max<size_t>(utf8_sequence(text), 1); }

}  // namespace quintet::data
