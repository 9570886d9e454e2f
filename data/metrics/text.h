#pragma once
// Python's view of text, for metrics that are defined by it: str.lower(), str.split(), \w of re.
//
//   for (std::string_view word : split(lower(text))) ...
//
// All text is valid UTF-8 (answer.h's texts() checks). Classes are ICU's; its version of Unicode
// may be a little newer than Python's.

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace quintet::data::metrics {

std::u32string code_points(std::string_view text);
std::string utf8(std::u32string_view text);

std::string lower(std::string_view text);
/// str.isspace() of one character.
bool is_space(char32_t c);
/// \w of re: letters, anything with a numeric value, and _. Marks are not words.
bool is_word(char32_t c);
/// general category N, P or S ("\p{N}")
bool is_number(char32_t c);
bool is_punctuation(char32_t c);
bool is_symbol(char32_t c);
/// string.punctuation
bool is_ascii_punctuation(char32_t c);

/// str.split(): pieces between runs of white space.
std::vector<std::string_view> split(std::string_view text);
std::vector<std::u32string_view> split(std::u32string_view text);
/// str.strip().
std::u32string_view strip(std::u32string_view text);
std::u32string_view rstrip(std::u32string_view text);

/// float(text) and int(text) of Python: white space around, _ between digits, digits of any script.
std::optional<double> parse_float(std::string_view text);
/// Without a sign; saturates.
std::optional<int64_t> parse_index(std::u32string_view text);

/// Numbers words in order of appearance, so that comparing them is comparing integers.
class Words {
 public:
  int32_t id(std::string_view word) {
    return ids_.try_emplace(std::string(word), static_cast<int32_t>(ids_.size())).first->second;
  }
  std::vector<int32_t> ids(const std::vector<std::string_view>& words) {
    std::vector<int32_t> all;
    all.reserve(words.size());
    for (std::string_view word : words) all.push_back(id(word));
    return all;
  }

 private:
  std::unordered_map<std::string, int32_t> ids_;
};

}  // namespace quintet::data::metrics
