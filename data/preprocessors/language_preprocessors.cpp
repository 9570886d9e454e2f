#include "data/preprocessors/language_preprocessors.h"

#include <unicode/uloc.h>
#include <unicode/unistr.h>

#include <algorithm>

#include "data/preprocessors/strings.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

/// Replaces all features.
void set_pair(Example& example, std::string inputs, std::string targets) {
  example.clear();
  example.set("inputs", std::move(inputs));
  example.set("targets", std::move(targets));
}

}  // namespace

std::string language_name(const std::string& code) {
  const std::string two = code.substr(0, 2);
  UErrorCode status = U_ZERO_ERROR;
  UChar name[64];
  const int32_t size = uloc_getDisplayLanguage(two.c_str(), "en", name, 64, &status);
  std::string text;
  icu::UnicodeString(name, size).toUTF8String(text);
  QT_CHECK(U_SUCCESS(status) && status != U_USING_DEFAULT_WARNING && !text.empty() && text != two,
           "translate: '{}' is not the code of a language; expected one such as 'en' or 'de'",
           code);
  return text;
}

StreamPtr Translate::apply(StreamPtr input, const PreprocessContext&) const {
  const std::string prefix = fmt::format("translate {} to {}: ", language_name(source_language),
                                         language_name(target_language));
  return map_stream(std::move(input), [*this, prefix](Example& example) {
    set_pair(example, prefix + example.text(source_language), example.text(target_language));
    return true;
  });
}

StreamPtr MultiTranslate::apply(StreamPtr input, const PreprocessContext& context) const {
  input = map_stream(std::move(input), [*this](Example& example) {
    const auto& languages = example.texts("translations/language");
    const auto& texts = example.texts("translations/translation");
    QT_CHECK_AS(ExitCode::kData, languages.size() == texts.size(),
                "{} translations for {} languages", texts.size(), languages.size());
    const auto source = std::find(languages.begin(), languages.end(), source_language);
    const auto target = std::find(languages.begin(), languages.end(), target_language);
    if (source == languages.end() || target == languages.end()) return false;
    const auto text_of = [&](auto language) {
      return texts[static_cast<size_t>(language - languages.begin())];
    };
    const std::string source_text = text_of(source), target_text = text_of(target);
    example.clear();
    example.set(source_language, source_text);
    example.set(target_language, target_text);
    return true;
  });
  Translate translate;
  translate.source_language = source_language;
  translate.target_language = target_language;
  return translate.apply(std::move(input), context);
}

StreamPtr Summarize::apply(StreamPtr input, const PreprocessContext&) const {
  return map_stream(std::move(input), [*this](Example& example) {
    set_pair(example, "summarize: " + example.text(article_key), example.text(summary_key));
    return true;
  });
}

StreamPtr Lm::apply(StreamPtr input, const PreprocessContext&) const {
  return map_stream(std::move(input), [](Example& example) {
    set_pair(example, "", example.text("text"));
    return true;
  });
}

StreamPtr PadNonspacedLanguages::apply(StreamPtr input, const PreprocessContext&) const {
  // Burmese; CJK ideographs, their extension A, compatibility forms, radicals, strokes and
  // punctuation; Hiragana, Katakana; Javanese, Khmer and its symbols, Lao, Tai Lue, Tai Tham, Thai,
  // Tibetan.
  static const RE2 characters(
      R"(([\x{1000}-\x{104f}\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{f900}-\x{faff}\x{2e80}-\x{2eff})"
      R"(\x{31c0}-\x{31ef}\x{3000}-\x{303f}\x{3040}-\x{309f}\x{30a0}-\x{30ff}\x{a980}-\x{a9df})"
      R"(\x{1780}-\x{17ff}\x{19e0}-\x{19ff}\x{0e80}-\x{0eff}\x{1980}-\x{19df}\x{1a20}-\x{1aaf})"
      R"(\x{0e00}-\x{0e7f}\x{0f00}-\x{0fff}]))");
  return map_stream(std::move(input), [key = text_key](Example& example) {
    example.set(key, collapse_spaces(replace_all(example.text(key), characters, R"( \1 )")));
    return true;
  });
}

StreamPtr FilterByStringLength::apply(StreamPtr input, const PreprocessContext&) const {
  return map_stream(std::move(input), [*this](Example& example) {
    const auto length = static_cast<int64_t>(example.text(feature_key).size());
    return length >= min_length && length <= max_length;
  });
}

StreamPtr PreprocessTensorflowExamples::apply(StreamPtr input, const PreprocessContext&) const {
  return map_stream(std::move(input), [*this](Example& example) {
    const auto value = [&example](std::string_view name, std::string& found) {
      if (!example.has(name)) return false;
      found = example.text(name);
      return true;
    };
    std::string inputs = fill_template(inputs_format, value);
    set_pair(example, std::move(inputs), fill_template(targets_format, value));
    return true;
  });
}

}  // namespace quintet::data
