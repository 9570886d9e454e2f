#include <algorithm>

#include "data/metrics/sacrebleu.h"
#include "data/metrics/text.h"
#include "runtime/base/check.h"
#include "runtime/base/nearest.h"

namespace quintet::data::metrics {
namespace {

enum class Space { around_first, around_second };

/// re.sub over two neighbours: from the left, without overlap, spaces around one of them.
template <typename First, typename Second>
std::u32string space_pairs(std::u32string_view line, First first, Second second, Space where) {
  std::u32string out;
  out.reserve(line.size() + line.size() / 4);
  for (size_t i = 0; i < line.size(); ++i) {
    if (i + 1 == line.size() || !first(line[i]) || !second(line[i + 1])) {
      out += line[i];
    } else if (where == Space::around_first) {
      out += {U' ', line[i], U' ', line[i + 1]};
      ++i;
    } else {
      out += {line[i], U' ', line[i + 1], U' '};
      ++i;
    }
  }
  return out;
}

/// Spaces around every character that `which` picks.
template <typename Which>
std::u32string space_around(std::u32string_view line, Which which) {
  std::u32string out;
  out.reserve(line.size() + line.size() / 4);
  for (const char32_t c : line)
    if (which(c))
      out += {U' ', c, U' '};
    else
      out += c;
  return out;
}

void replace_all(std::u32string& text, std::u32string_view from, std::u32string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::u32string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
bool is_period_or_comma(char32_t c) { return c == '.' || c == ','; }

/// The part that 13a and zh share: ASCII punctuation, and . , - by the digits next to them.
std::u32string separate_punctuation(std::u32string_view line) {
  const auto not_digit = [](char32_t c) { return !is_digit(c); };
  std::u32string out = space_around(line, [](char32_t c) {
    return c == ' ' || (is_ascii_punctuation(c) && c != '\'' && c != ',' && c != '-' && c != '.');
  });
  out = space_pairs(out, not_digit, is_period_or_comma, Space::around_second);
  out = space_pairs(out, is_period_or_comma, not_digit, Space::around_first);
  return space_pairs(
      out, is_digit, [](char32_t c) { return c == '-'; }, Space::around_second);
}

std::u32string tokenize_13a(std::u32string_view text) {
  std::u32string line = U" " + std::u32string(text) + U" ";
  replace_all(line, U"<skipped>", U"");
  replace_all(line, U"-\n", U"");
  replace_all(line, U"\n", U" ");
  replace_all(line, U"&quot;", U"\"");
  replace_all(line, U"&amp;", U"&");
  replace_all(line, U"&lt;", U"<");
  replace_all(line, U"&gt;", U">");
  return separate_punctuation(line);
}

std::u32string tokenize_intl(std::u32string_view line) {
  const auto not_number = [](char32_t c) { return !is_number(c); };
  std::u32string out = space_pairs(line, not_number, is_punctuation, Space::around_second);
  out = space_pairs(out, is_punctuation, not_number, Space::around_first);
  return space_around(out, is_symbol);
}

/// What sacrebleu takes for Chinese. Its two ranges beyond U+FFFF are written with four-digit
/// escapes, which makes them U+2001..2A6D and U+2F81..2FA1; scores depend on it.
bool is_chinese(char32_t c) {
  constexpr struct {
    char32_t first, last;
  } kRanges[] = {{0x3400, 0x4DB5}, {0x4E00, 0x9FA5}, {0x9FA6, 0x9FBB}, {0xF900, 0xFA2D},
                 {0xFA30, 0xFA6A}, {0xFA70, 0xFAD9}, {0x2001, 0x2A6D}, {0x2F81, 0x2FA1},
                 {0xFF00, 0xFFEF}, {0x2E80, 0x2EFF}, {0x3000, 0x303F}, {0x31C0, 0x31EF},
                 {0x2F00, 0x2FDF}, {0x2FF0, 0x2FFF}, {0x3100, 0x312F}, {0x31A0, 0x31BF},
                 {0xFE10, 0xFE1F}, {0xFE30, 0xFE4F}, {0x2600, 0x26FF}, {0x2700, 0x27BF},
                 {0x3200, 0x32FF}, {0x3300, 0x33FF}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [c](const auto& range) { return c >= range.first && c <= range.last; });
}

std::u32string tokenize_zh(std::u32string_view line) {
  return separate_punctuation(space_around(strip(line), is_chinese));
}

std::u32string tokenize_char(std::u32string_view line) {
  return space_around(line, [](char32_t) { return true; });
}

std::u32string tokenize_none(std::u32string_view line) { return std::u32string(line); }

}  // namespace

BleuTokenizer bleu_tokenizer(const std::string& name) {
  static const std::vector<std::pair<std::string, BleuTokenizer>> known = {{"13a", tokenize_13a},
                                                                           {"intl", tokenize_intl},
                                                                           {"zh", tokenize_zh},
                                                                           {"char", tokenize_char},
                                                                           {"none", tokenize_none}};
  std::vector<std::string> names;
  for (const auto& [known_name, tokenizer] : known) {
    if (known_name == name) return tokenizer;
    names.push_back(known_name);
  }
  fail(ExitCode::kUsage, "bleu: tokenizer '{}' is not known{}; the known ones are {}", name,
       did_you_mean(name, names), fmt::join(names, ", "));
}

}  // namespace quintet::data::metrics
