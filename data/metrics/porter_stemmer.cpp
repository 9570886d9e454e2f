// M. F. Porter, "An algorithm for suffix stripping" (1980), with the departures of NLTK's
// implementation, which rouge_score uses.
#include <algorithm>
#include <array>

#include "data/metrics/rouge.h"

namespace quintet::data::metrics {
namespace {

bool is_vowel_letter(char c) { return c == 'a' || c == 'e' || c == 'i' || c == 'o' || c == 'u'; }

/// y is a consonant at the start and after a vowel.
bool is_consonant(std::string_view word, size_t i) {
  bool consonant = true;  // of the first letter of a run of y
  size_t first = i;
  while (first > 0 && word[first] == 'y') --first;
  if (word[first] != 'y') consonant = !is_vowel_letter(word[first]);
  return (i - first) % 2 == 0 ? consonant : !consonant;
}

/// m of the paper: how often a consonant follows a vowel.
int measure(std::string_view stem) {
  int m = 0;
  bool after_vowel = false;
  for (size_t i = 0; i < stem.size(); ++i) {
    // With the letter before known, no walk back over a run of y is needed.
    const bool consonant = stem[i] == 'y' ? i == 0 || after_vowel : !is_vowel_letter(stem[i]);
    m += consonant && after_vowel;
    after_vowel = !consonant;
  }
  return m;
}

bool contains_vowel(std::string_view stem) {
  for (size_t i = 0; i < stem.size(); ++i)
    if (is_vowel_letter(stem[i]) || (stem[i] == 'y' && i > 0)) return true;
  return false;
}

bool ends_double_consonant(std::string_view word) {
  const size_t n = word.size();
  return n >= 2 && word[n - 1] == word[n - 2] && is_consonant(word, n - 1);
}

/// *o of the paper, and (NLTK) a vowel and a consonant alone.
bool ends_cvc(std::string_view word) {
  const size_t n = word.size();
  if (n == 2) return !is_consonant(word, 0) && is_consonant(word, 1);
  return n >= 3 && is_consonant(word, n - 3) && !is_consonant(word, n - 2) &&
         is_consonant(word, n - 1) && word[n - 1] != 'w' && word[n - 1] != 'x' &&
         word[n - 1] != 'y';
}

struct Rule {
  std::string_view suffix, replacement;
};

/// The first rule whose suffix fits decides: its condition on the stem is met, or nothing happens.
template <size_t n, typename Condition>
void apply(std::string& word, const std::array<Rule, n>& rules, Condition condition) {
  for (const Rule& rule : rules) {
    if (!word.ends_with(rule.suffix)) continue;
    const size_t stem = word.size() - rule.suffix.size();
    if (condition(std::string_view(word).substr(0, stem), rule))
      word.replace(stem, std::string::npos, rule.replacement);
    return;
  }
}

bool always(std::string_view, const Rule&) { return true; }
bool positive_measure(std::string_view stem, const Rule&) { return measure(stem) > 0; }

void step_1a(std::string& word) {
  if (word.size() == 4 && word.ends_with("ies")) {
    word.pop_back();
    return;
  }
  apply(word, std::to_array<Rule>({{"sses", "ss"}, {"ies", "i"}, {"ss", "ss"}, {"s", ""}}), always);
}

void step_1b(std::string& word) {
  if (word.ends_with("ied")) {
    word.resize(word.size() - (word.size() == 4 ? 1 : 2));
    return;
  }
  if (word.ends_with("eed")) {
    if (measure(std::string_view(word).substr(0, word.size() - 3)) > 0) word.pop_back();
    return;
  }
  const size_t cut = word.ends_with("ed") ? 2 : word.ends_with("ing") ? 3 : 0;
  if (cut == 0 || !contains_vowel(std::string_view(word).substr(0, word.size() - cut))) return;
  word.resize(word.size() - cut);
  if (word.ends_with("at") || word.ends_with("bl") || word.ends_with("iz")) {
    word += 'e';
  } else if (ends_double_consonant(word)) {
    const char last = word.back();
    if (last != 'l' && last != 's' && last != 'z') word.pop_back();
  } else if (measure(word) == 1 && ends_cvc(word)) {
    word += 'e';
  }
}

void step_1c(std::string& word) {
  if (word.size() > 2 && word.back() == 'y' && is_consonant(word, word.size() - 2))
    word.back() = 'i';
}

void step_2(std::string& word) {
  if (word.ends_with("alli") && measure(std::string_view(word).substr(0, word.size() - 4)) > 0)
    word.resize(word.size() - 2);
  apply(word,
        std::to_array<Rule>(
            {{"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"},   {"anci", "ance"},
             {"izer", "ize"},    {"bli", "ble"},     {"alli", "al"},     {"entli", "ent"},
             {"eli", "e"},       {"ousli", "ous"},   {"ization", "ize"}, {"ation", "ate"},
             {"ator", "ate"},    {"alism", "al"},    {"iveness", "ive"}, {"fulness", "ful"},
             {"ousness", "ous"}, {"aliti", "al"},    {"iviti", "ive"},   {"biliti", "ble"},
             {"fulli", "ful"},   {"logi", "log"}}),
        [&](std::string_view stem, const Rule& rule) {
          // The l of "logi" belongs to the stem.
          return measure(rule.suffix == "logi" ? std::string_view(word).substr(0, stem.size() + 1)
                                               : stem) > 0;
        });
}

void step_3(std::string& word) {
  apply(word,
        std::to_array<Rule>({{"icate", "ic"},
                             {"ative", ""},
                             {"alize", "al"},
                             {"iciti", "ic"},
                             {"ical", "ic"},
                             {"ful", ""},
                             {"ness", ""}}),
        positive_measure);
}

void step_4(std::string& word) {
  apply(word,
        std::to_array<Rule>({{"al", ""},
                             {"ance", ""},
                             {"ence", ""},
                             {"er", ""},
                             {"ic", ""},
                             {"able", ""},
                             {"ible", ""},
                             {"ant", ""},
                             {"ement", ""},
                             {"ment", ""},
                             {"ent", ""},
                             {"ion", ""},
                             {"ou", ""},
                             {"ism", ""},
                             {"ate", ""},
                             {"iti", ""},
                             {"ous", ""},
                             {"ive", ""},
                             {"ize", ""}}),
        [](std::string_view stem, const Rule& rule) {
          return measure(stem) > 1 &&
                 (rule.suffix != "ion" || stem.back() == 's' || stem.back() == 't');
        });
}

void step_5(std::string& word) {
  if (word.ends_with('e')) {
    const std::string_view stem = std::string_view(word).substr(0, word.size() - 1);
    const int m = measure(stem);
    if (m > 1 || (m == 1 && !ends_cvc(stem))) word.pop_back();
  }
  if (word.ends_with("ll") && measure(std::string_view(word).substr(0, word.size() - 1)) > 1)
    word.pop_back();
}

}  // namespace

std::string porter_stem(std::string_view word) {
  static constexpr std::pair<std::string_view, std::string_view> kIrregular[] = {
      {"sky", "sky"},        {"skies", "sky"},        {"dying", "die"},
      {"lying", "lie"},      {"tying", "tie"},        {"news", "news"},
      {"innings", "inning"}, {"inning", "inning"},    {"outings", "outing"},
      {"outing", "outing"},  {"cannings", "canning"}, {"canning", "canning"},
      {"howe", "howe"},      {"proceed", "proceed"},  {"exceed", "exceed"},
      {"succeed", "succeed"}};
  for (const auto& [form, stem] : kIrregular)
    if (word == form) return std::string(stem);
  std::string stem(word);
  if (stem.size() <= 2) return stem;
  for (const auto step : {step_1a, step_1b, step_1c, step_2, step_3, step_4, step_5}) step(stem);
  return stem;
}

}  // namespace quintet::data::metrics
