#include "data/preprocessors/strings.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace quintet::data {
namespace {
constexpr std::string_view kSpaces = " \t\n\v\f\r";
}

std::string replace_all(std::string text, const RE2& pattern, const std::string& rewrite) {
  RE2::GlobalReplace(&text, pattern, rewrite);
  return text;
}

std::string replace_all(std::string text, std::string_view old_text, std::string_view new_text) {
  for (size_t at = text.find(old_text); at != std::string::npos;
       at = text.find(old_text, at + new_text.size()))
    text.replace(at, old_text.size(), new_text);
  return text;
}

void check_pattern(const RE2& pattern) {
  QT_CHECK_AS(ExitCode::kData, pattern.ok(), "'{}' is no regular expression: {}", pattern.pattern(),
              pattern.error());
}

std::string collapse_spaces(std::string text) {
  static const RE2 spaces(R"(\s+)");
  return replace_all(std::move(text), spaces, " ");
}

std::string pad_punctuation(std::string text) {
  static const RE2 punctuation("([[:punct:]])");
  return collapse_spaces(replace_all(std::move(text), punctuation, R"( \1 )"));
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts.begin(), parts.end(), separator));
}

std::vector<std::string> split(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts;
  for (size_t at = 0;;) {
    const size_t end = text.find(separator, at);
    parts.emplace_back(text.substr(at, end - at));
    if (end == std::string_view::npos) return parts;
    at = end + separator.size();
  }
}

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  for (size_t at = text.find_first_not_of(kSpaces); at != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kSpaces, at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = text.find_first_not_of(kSpaces, end);
  }
  return words;
}

std::string strip(std::string_view text) {
  const size_t start = text.find_first_not_of(kSpaces);
  if (start == std::string_view::npos) return "";
  return std::string(text.substr(start, text.find_last_not_of(kSpaces) + 1 - start));
}

std::string lower_ascii(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

}  // namespace quintet::data
