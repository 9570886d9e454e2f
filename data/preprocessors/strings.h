#pragma once
// String operations as TensorFlow's, which the text preprocessors of T5 are written in: regular
// expressions are RE2's, white space and lower case are ASCII's.
//
//   pad_punctuation("It's 3-4.") == "It ' s 3 - 4 . "

#include <re2/re2.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::data {

/// tf.strings.regex_replace: every match; the rewrite may name groups (\1).
std::string replace_all(std::string text, const RE2& pattern, const std::string& rewrite);
std::string replace_all(std::string text, std::string_view old_text, std::string_view new_text);
/// Throws kData if the pattern, which is made of data, cannot be compiled.
void check_pattern(const RE2& pattern);
/// Runs of white space become one space.
std::string collapse_spaces(std::string text);
/// A space on both sides of every ASCII punctuation mark; then collapse_spaces.
std::string pad_punctuation(std::string text);

std::string join(std::span<const std::string> parts, std::string_view separator);
/// Python's text.split(separator): empty parts stay.
std::vector<std::string> split(std::string_view text, std::string_view separator);
/// Python's text.split(): between runs of white space.
std::vector<std::string> split_words(std::string_view text);
std::string strip(std::string_view text);
std::string lower_ascii(std::string text);
/// Replaces "{name}" for every name that `value` knows (it returns false for others).
template <typename Lookup>
std::string fill_template(std::string_view format, Lookup value) {
  std::string out, found;
  for (size_t at = 0; at < format.size();) {
    const size_t open = std::min(format.find('{', at), format.size());
    out += format.substr(at, open - at);
    const size_t close = format.find('}', open);
    if (open == format.size() || close == std::string_view::npos)
      return out.append(format.substr(open));
    if (value(format.substr(open + 1, close - open - 1), found)) {
      out += found;
      at = close + 1;
    } else {
      out += '{';
      at = open + 1;
    }
  }
  return out;
}

}  // namespace quintet::data
