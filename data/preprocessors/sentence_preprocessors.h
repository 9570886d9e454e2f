#pragma once
// t5's unsupervised tasks on words and sentences: blanks to fill in, neighbouring sentences.

#include "data/examples/preprocessor.h"

namespace quintet::data {

/// Adds "words": the text at its white space. Texts of fewer words are dropped.
struct SplitTextToWords final : Preprocessor {
  std::string text_key = "text";
  int64_t min_num_words = 2;
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// A random chunk of at most max_words_total words, cut into pieces of one length, which is drawn
/// log-uniformly.
struct RandomSplitText final : Preprocessor {
  std::string text_key = "text";
  int64_t min_words_per_segment = 16, max_words_per_segment = 512;
  int64_t max_words_total = 8192;  // 0: no chunk
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// Cuts a text at random and gives it twice: every other piece is blanked (X) in the inputs and is
/// the targets, and the reverse.
struct FillInTheBlank final : Preprocessor {
  std::string text_key = "text", label = "fill: ";
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// One blank that says its size, rounded to a bin: "fill: a _2_ d" -> "b c".
struct FillInTheBlankSized final : Preprocessor {
  std::vector<int64_t> size_bins = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
  std::string text_key = "text", label = "fill: ";
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// {first, second}: sentences of a line that follow each other.
struct NeighboringPairs final : Preprocessor {
  std::string text_key = "text";
  bool reuse_sentences = true;
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// Two pairs at a time, as they are ("next") or with their second sentences swapped ("not_next").
struct NextSentencePrediction final : Preprocessor {
  std::string text_key = "text";
  bool reuse_sentences = true, label_sentences = false;
  double p_neighbors = 0.5;
  std::string label = "nsp: ";
  int64_t buffer_size = 50000;  // pairs that are shuffled together
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

}  // namespace quintet::data
