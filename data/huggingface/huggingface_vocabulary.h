#pragma once
// The tokenizer of a Hugging Face directory: ids and text as transformers' AutoTokenizer has them.
//
//   const HuggingFaceVocabulary vocabulary("/models/flan-t5-small");
//   vocabulary.encode("a <extra_id_0> b");   // without an end token; encode_input has it

#include "data/huggingface/tokenizer_files.h"
#include "data/vocabularies/file_vocabulary.h"

namespace quintet::data {

class HuggingFaceVocabulary final : public FileVocabulary {
 public:
  /// Throws what read_tokenizer throws.
  explicit HuggingFaceVocabulary(std::string directory);

  Tokens encode(std::string_view text) const override;
  int32_t vocab_size() const override { return size_; }
  int32_t base_vocab_size() const override { return size_; }
  /// "<extra_id_0>" and the like.
  int32_t extra_ids() const override { return extra_ids_; }
  std::optional<int32_t> eos_id() const override { return parts_.eos_id; }
  std::optional<int32_t> unk_id() const override { return parts_.unk_id; }
  /// Ids of an input, as transformers' tokenizer gives them: with the end token, if it has one. Bytes that
  /// end with "</s>" get no second one.
  Tokens encode_input(std::string_view text) const;
  /// Where spiece.model is beside it, that of the SentencePieceVocabulary with as many extra ids, or of a
  /// ByteVocabulary: ids mean the same, so that tasks with these may train the model.
  std::string description() const override { return description_; }
  /// tokenizer.json or spiece.model; empty: bytes.
  std::string model_file() const override { return parts_.file.string(); }
  std::string decode_open(const DecodeState& state) const override;

 protected:
  void append(int32_t id, DecodeState& state, std::string& text) const override;

 private:
  void add_finders();
  std::string describe(const std::string& directory) const;
  void encode_piece(TextPiece piece, Tokens& ids) const;
  void encode_normalized(TextPiece piece, Tokens& ids) const;
  /// Empty: has no text of its own.
  std::string token_text(int32_t id) const;

  TokenizerParts parts_;
  TokenFinder in_text_, in_normalized_;
  int32_t size_ = 0, extra_ids_ = 0;
  std::string description_;
};

}  // namespace quintet::data
