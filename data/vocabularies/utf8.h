#pragma once
// UTF-8 as the references read it: checked where files are read, repaired where bytes are decoded.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::data {

/// Bytes of the well-formed sequence at the start of text (Unicode table 3-7), 0 if there is none.
size_t utf8_sequence(std::string_view text);
/// Moves whole characters from the start of bytes to the end of text, `wrong` for each byte that
/// can be part of none. What stays may yet begin a character: 3 bytes at most.
void take_characters(std::string& bytes, std::string& text, std::string_view wrong);
/// Offset of the first byte that is not well-formed UTF-8, npos if all is.
size_t find_bad_utf8(std::string_view text);
/// Without the bytes that are not UTF-8, as Python's decode("utf-8", "ignore").
std::string drop_bad_utf8(std::string_view bytes);
/// The characters of a text; bytes that are not UTF-8 are left out.
std::vector<int32_t> codepoints_of(std::string_view text);
/// Appends a character; nothing for what is none (surrogates, beyond U+10FFFF).
void append_utf8(std::string& text, int32_t codepoint);

}  // namespace quintet::data
