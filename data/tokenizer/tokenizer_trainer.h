#pragma once
// Training of SentencePiece models with T5's special ids: 0 padding, 1 end of sequence, 2 unknown.
//
//   train_tokenizer({.inputs = {"docs/*.txt"}, .vocab_size = 8000}, "docs");
//   // docs.model and docs.vocab are written
//
// The same files and options give the same bytes.

#include <cstdint>
#include <string>
#include <vector>

namespace quintet::data {

struct TokenizerOptions {
  std::vector<std::string> inputs;     // files or patterns; *.gz is decompressed
  int64_t vocab_size = 0;              // special ids included, extra ids not
  std::string model_type = "unigram";  // or bpe, char, word
  double character_coverage = 0.9995;  // the rarest characters become unknown (or bytes)
  bool byte_fallback = false;          // unknown characters as bytes: then nothing is unknown
  std::string normalization = "nmt_nfkc";
  bool split_digits = false;
  int64_t input_sentence_size = 2'000'000;  // more lines than this are sampled evenly
  bool on_bad_utf8_skip = false;
};

struct TokenizerReport {
  int64_t lines = 0;    // in the files
  int64_t used = 0;     // after sampling, without empty and over-long lines
  int64_t skipped = 0;  // longer than kMaxSentenceBytes, or bad UTF-8 if those are to be skipped
  int64_t pieces = 0;
  std::string model_file, vocab_file;
};
inline constexpr int64_t kMaxSentenceBytes = 1 << 16;

/// Writes PREFIX.model and PREFIX.vocab (piece and score a line). Throws kUsage for options that
/// the trainer refuses (such as more pieces than the text has), kData for unusable files, kDisk.
TokenizerReport train_tokenizer(const TokenizerOptions& options, const std::string& model_prefix);

}  // namespace quintet::data
