#pragma once
// BERT's word pieces, as seqio.BertWordPieceVocabulary and TensorFlow Text make them: words and
// marks apart, each word the longest pieces from its start on, "##" before those that continue one.
//
//   BertWordPieceVocabulary vocabulary({.vocab_lookup_table = "vocab.txt", .lower_case = true});

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/vocabularies/vocabulary.h"

namespace quintet::data {

class BertWordPieceVocabulary final : public Vocabulary {
 public:
  struct Options {
    std::string vocab_lookup_table;  // a piece a line; its number is its id
    std::string suffix_indicator = "##";
    int64_t max_bytes_per_word = 100;  // longer words are unknown
    std::optional<int64_t> max_chars_per_token = {};
    std::string unknown_token = "[UNK]";
    bool split_unknown_characters = false;  // only they become unknown, not their whole word
    bool lower_case = false;                // and without accents
    bool keep_whitespace = false;
    std::optional<std::string> normalization_form = {};  // NFC, NFD, NFKC or NFKD
    bool preserve_unused_token = false;                  // "[unused7]" is one piece
    int32_t start_of_sequence_id = 101, end_of_sequence_id = 102;
  };
  /// Throws kData if the file cannot be read or names no unknown token.
  explicit BertWordPieceVocabulary(Options options);
  ~BertWordPieceVocabulary() override;
  Tokens encode(std::string_view text) const override;
  /// One more than the file has lines: the last id is of pieces that are not there.
  int32_t base_vocab_size() const override { return static_cast<int32_t>(pieces_.size()) + 1; }
  std::optional<int32_t> bos_id() const override { return options_.start_of_sequence_id; }
  std::optional<int32_t> eos_id() const override { return options_.end_of_sequence_id; }
  std::optional<int32_t> unk_id() const override { return unk_id_; }
  std::string description() const override;
  const std::string& vocab_lookup_table() const { return options_.vocab_lookup_table; }

 protected:
  void append(int32_t id, DecodeState& state, std::string& text) const override;

 private:
  struct Patterns;
  int32_t id_of(const std::string& piece) const;
  void encode_word(std::string_view word, Tokens& ids) const;
  Options options_;
  std::vector<std::string> pieces_;
  std::unordered_map<std::string, int32_t> ids_;
  int32_t unk_id_ = 0;
  uint32_t checksum_ = 0;  // of the file, so that equality means equal content
  std::unique_ptr<const Patterns> patterns_;
};

}  // namespace quintet::data
