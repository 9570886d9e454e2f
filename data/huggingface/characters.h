#pragma once
// White space and letters at the ends of UTF-8 text, as Rust's strings and the tokenizers library have
// them.

#include <cstddef>
#include <string_view>

namespace quintet::data {

/// What counts as white space: Unicode's White_Space, as in Rust; in Python the separators U+001C to
/// U+001F, too.
enum class Spaces { rust, python };
/// Bytes of the white space that a text begins or ends with.
size_t spaces_at_start(std::string_view text, Spaces spaces = Spaces::rust);
size_t spaces_at_end(std::string_view text, Spaces spaces = Spaces::rust);
/// Whether a text begins or ends with a letter, digit or other character of words (\w).
bool starts_with_word(std::string_view text);
bool ends_with_word(std::string_view text);
/// Bytes of the character at the start of a text that is not empty; 1 for a byte that is none.
size_t character_size(std::string_view text);

}  // namespace quintet::data
