#pragma once
// The little of Unicode that Python's literals and repr() need. Strings are UTF-8; a lone
// surrogate, which a Python str may hold, is kept in its three-byte form.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quintet::gin {

/// The code point that starts at text[i]; moves i behind it. Invalid bytes are returned as
/// themselves.
char32_t next_code_point(std::string_view text, size_t& i);
void append_utf8(std::string& out, char32_t c);
/// Offset of the first byte that is not part of valid UTF-8 (surrogates count as invalid), or npos.
size_t find_invalid_utf8(std::string_view text);
size_t count_code_points(std::string_view text);
/// What repr() prints as itself: Python's str.isprintable, without the unassigned code points.
bool is_printable(char32_t c);
bool is_space(char32_t c);       // Python's \s for str
bool is_line_break(char32_t c);  // where str.splitlines() cuts
/// May stand in a Python identifier behind the first letter (approximately, for non-ASCII).
bool is_word(char32_t c);

}  // namespace quintet::gin
