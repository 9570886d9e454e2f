#pragma once
// t5's preprocessors that name the task before a text: translation, summaries, language models.
//
//   Translate{"en", "de"} : {en: "yes", de: "ja"}
//                        -> {inputs: "translate English to German: yes", targets: "ja"}

#include "data/examples/preprocessor.h"

namespace quintet::data {

struct Translate final : Preprocessor {
  std::string source_language, target_language;  // ISO 639: "en", "de"
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// From {translations/language: [..], translations/translation: [..]}; examples without one of the
/// languages are dropped.
struct MultiTranslate final : Preprocessor {
  std::string source_language, target_language;
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// English name of a language by the first two letters of its code; a usage error if unknown.
std::string language_name(const std::string& code);

struct Summarize final : Preprocessor {
  std::string article_key, summary_key;
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// t5's lm: {text} -> {inputs: "", targets: text}.
struct Lm final : Preprocessor {
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// Spaces around characters of languages that are written without (Chinese, Thai, ..).
struct PadNonspacedLanguages final : Preprocessor {
  std::string text_key = "text";
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// Keeps texts of min_length to max_length bytes.
struct FilterByStringLength final : Preprocessor {
  std::string feature_key = "targets";
  int64_t min_length = 1, max_length = 1'000'000;
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// seqio's preprocess_tensorflow_examples: the formats' "{feature}" become that feature's text.
struct PreprocessTensorflowExamples final : Preprocessor {
  std::string inputs_format, targets_format;
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

}  // namespace quintet::data
