// The Winograd schemas of GLUE and SuperGLUE: WSC, WNLI and DPR.
#include <unicode/locid.h>
#include <unicode/unistr.h>

#include <algorithm>

#include "data/preprocessors/glue_preprocessors.h"
#include "data/preprocessors/strings.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

/// `span`, which begins at word `index`, between two marks. The span is taken for a pattern, as in
/// T5; a text that does not match stays as it is.
std::string mark_span(std::string text, const std::string& span, int64_t index,
                      const std::string& mark) {
  const RE2 pattern(fmt::format(R"(^((?:\S+\s){{{}}})({}))", index, span));
  check_pattern(pattern);
  return replace_all(std::move(text), pattern, fmt::format(R"(\1{0} \2 {0})", mark));
}

/// Whole numbers or booleans; 0 where a test set has none.
int64_t label_of(const Example& example) {
  return example.has("label") ? example.integer("label") : 0;
}

/// Two texts of the training set whose words do not fit their indices, and what T5 makes of them.
constexpr std::pair<std::string_view, std::string_view> kMisfits[] = {
    {"The boy continued to whip the pony , and eventually the pony threw him over. John laughed "
     "out quite loud. \"Good for him,\" he said. ",
     "The boy continued to whip the pony , and eventually the pony threw him over. John laughed "
     "out quite loud. \"Good for X ,\" he said."},
    {"When they had eventually calmed down a bit , and had gotten home, Mr. Farley put the magic "
     "pebble in an iron safe . Some day they might want to use it , but really for now, what more "
     "could they wish for?",
     "When they had eventually calmed down a bit , and had gotten home, Mr. Farley put the magic "
     "pebble in an iron safe . Some day they might want to use X , but really for now, what more "
     "could they wish for?"}};

/// The text with X for its pronoun.
std::string with_blank(const Example& example) {
  const std::string& text = example.text("text");
  std::vector<std::string> words = split(text, " ");
  const int64_t index = example.integer("span2_index");
  QT_CHECK_AS(ExitCode::kData, index > 0 && index < static_cast<int64_t>(words.size()),
              "wsc_simple: span2_index {} in a text of {} words", index, words.size());
  for (const auto& [misfit, blanked] : kMisfits)
    if (text == misfit) return std::string(blanked);
  std::string& word = words[static_cast<size_t>(index)];
  QT_CHECK_AS(ExitCode::kData, word == example.text("span2_text"),
              "wsc_simple: word {} of the text is '{}', expected span2_text '{}'", index, word,
              example.text("span2_text"));
  word = "X";
  return join(words, " ") + (static_cast<size_t>(index) + 1 == words.size() ? " " : "");
}

}  // namespace

StreamPtr Wsc::apply(StreamPtr input, const PreprocessContext&) const {
  return map_stream(std::move(input), [](Example& example) {
    const int64_t first = example.integer("span1_index"), second = example.integer("span2_index");
    std::string text = mark_span(example.text("text"), example.text("span1_text"), first, "*");
    // The marks around the first span are two more words.
    text = mark_span(std::move(text), example.text("span2_text"), second + (first < second ? 2 : 0),
                     "#");
    const int64_t label = label_of(example);
    Example out;
    out.set("inputs", "wsc text: " + text);
    out.set("targets", std::string(label == -1 ? "<unk>" : label == 0 ? "False" : "True"));
    out.set("idx", example.at("idx"));
    example.items() = std::move(out.items());
    return true;
  });
}

StreamPtr WscSimple::apply(StreamPtr input, const PreprocessContext&) const {
  static const RE2 blank(" X ");
  return map_stream(std::move(input), [*this](Example& example) {
    if (correct_referent_only && label_of(example) == 0) return false;
    Example out;
    out.set("inputs",
            label + " " +
                replace_all(with_blank(example), blank, " *" + example.text("span2_text") + "* "));
    out.set("targets", example.text("span1_text"));
    out.set("label", label_of(example));
    out.set("idx", example.at("idx"));
    example.items() = std::move(out.items());
    return true;
  });
}

StreamPtr DefinitePronounResolutionSimple::apply(StreamPtr input, const PreprocessContext&) const {
  return map_stream(std::move(input), [*this](Example& example) {
    const RE2 pronoun(" (" + example.text("pronoun") + R"()( |\.|,))");
    check_pattern(pronoun);
    std::string sentence = example.text("sentence");
    RE2::Replace(&sentence, pronoun, R"( *\1*\2)");
    const auto& candidates = example.texts("candidates");
    const int64_t index = example.integer("label");
    QT_CHECK_AS(ExitCode::kData, index >= 0 && index < static_cast<int64_t>(candidates.size()),
                "label {} of {} candidates", index, candidates.size());
    std::string target = candidates[static_cast<size_t>(index)];
    example.clear();
    example.set("inputs", label + " " + sentence);
    example.set("targets", std::move(target));
    return true;
  });
}

namespace {

using Words = std::vector<std::string>;

/// Lower-case words without a mark at their end.
Words clean_words(const std::string& sentence) {
  std::string lower;
  icu::UnicodeString::fromUTF8(strip(sentence)).toLower(icu::Locale::getRoot()).toUTF8String(lower);
  Words words = split(lower, " ");
  for (std::string& word : words)
    if (!word.empty() && std::string_view(".,?!").find(word.back()) != std::string_view::npos)
      word.pop_back();
  std::erase(words, "");
  return words;
}

/// How many of the words, from the first on, are together in the hypothesis.
size_t match_size(const Words& hypothesis, const Words& words) {
  const std::string text = join(hypothesis, " ");
  for (size_t i = 0; i < words.size(); ++i)
    if (text.find(join(std::span(words).first(i + 1), " ")) == std::string::npos) return i;
  return words.size();
}

Words reversed(Words words) {
  std::reverse(words.begin(), words.end());
  return words;
}

struct PronounMatch {
  size_t score = 0, index = 0;
  std::string candidate;  // what the hypothesis has in the pronoun's place
};

PronounMatch match_pronoun(const Words& premise, const Words& hypothesis, size_t index) {
  const auto at = premise.begin() + static_cast<std::ptrdiff_t>(index);
  const Words before(premise.begin(), at), after(at + 1, premise.end());
  const size_t pre = match_size(reversed(hypothesis), reversed(before));
  const size_t post = match_size(hypothesis, after);
  PronounMatch match{pre + post, index, ""};
  if (match.score == 0) return match;
  // Words around the gap; they are taken for patterns, as in T5.
  const std::string left = join(std::span(before).last(pre), " ");
  const std::string right = join(std::span(after).first(post), " ");
  const std::string lead = pre > 0 ? left + " " : "", trail = post > 0 ? " " + right : "";
  const std::string text = join(hypothesis, " ");
  for (const std::string& pattern : {lead + "(.+)" + trail, "^(.+)" + trail, lead + "(.+)$"}) {
    const RE2 gap(pattern);
    check_pattern(gap);
    if (RE2::PartialMatch(text, gap, &match.candidate)) break;
  }
  return match;
}

PronounMatch best_match(const Words& premise, const Words& hypothesis) {
  static const Words pronouns = {"he", "she", "they", "it", "her", "his", "their", "them", "him"};
  std::optional<PronounMatch> best;
  for (size_t i = 0; i < premise.size(); ++i) {
    if (std::find(pronouns.begin(), pronouns.end(), premise[i]) == pronouns.end()) continue;
    PronounMatch match = match_pronoun(premise, hypothesis, i);
    if (!best || match.score > best->score) best = std::move(match);
  }
  QT_CHECK_AS(ExitCode::kData, best.has_value(), "wnli_simple: no pronoun in '{}'",
              join(premise, " "));
  return *best;
}

/// The candidate, from its last article on, as the hypothesis writes it.
std::string as_written(const std::string& candidate, const std::string& hypothesis) {
  Words words = split(candidate, " ");
  size_t start = 0;
  for (const char* article : {"a", "an", "the"}) {
    const auto found = std::find(words.begin(), words.end(), article);
    if (found != words.end()) start = std::max(start, static_cast<size_t>(found - words.begin()));
  }
  std::string pattern;
  for (size_t i = start; i < words.size(); ++i)
    pattern += (i > start ? " " : "") + RE2::QuoteMeta(words[i]) + R"((?:\.|,|\?|\!)?)";
  RE2::Options options;
  options.set_case_sensitive(false);
  const RE2 find("(" + pattern + ")", options);
  std::string written;
  QT_CHECK_AS(ExitCode::kData, RE2::PartialMatch(hypothesis, find, &written),
              "wnli_simple: '{}' is not in the hypothesis '{}'", candidate, hypothesis);
  if (!written.empty() && std::string_view(".,!?").find(written.back()) != std::string_view::npos)
    written.pop_back();
  for (std::string_view possessive : {"'", "'s"})
    if (written.ends_with(possessive)) return written.substr(0, written.size() - possessive.size());
  return written;
}

/// The sentence with stars around word `index`.
std::string highlight(const std::string& sentence, size_t index) {
  Words words = split(sentence, " ");
  QT_CHECK_AS(ExitCode::kData, index < words.size() && !words[index].empty(),
              "wnli_simple: no word {} in '{}'", index, sentence);
  std::string& word = words[index];
  if (std::string_view(".,!?").find(word.back()) != std::string_view::npos)
    word = fmt::format("*{}* {}", word.substr(0, word.size() - 1), word.back());
  else
    word = "*" + word + "*";
  return join(words, " ");
}

}  // namespace

StreamPtr WnliSimple::apply(StreamPtr input, const PreprocessContext&) const {
  return map_stream(std::move(input), [*this](Example& example) {
    const std::string premise = example.text("sentence1"), hypothesis = example.text("sentence2");
    const PronounMatch match = best_match(clean_words(premise), clean_words(hypothesis));
    Example out;
    out.set("inputs", label + " " + highlight(premise, match.index));
    out.set("targets", as_written(match.candidate, hypothesis));
    out.set("premise", premise);
    out.set("hypothesis", hypothesis);
    out.set("label", label_of(example));
    out.set("idx", example.at("idx"));
    example.items() = std::move(out.items());
    return true;
  });
}

}  // namespace quintet::data
