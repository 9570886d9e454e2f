#pragma once
// Text to ids and back, exactly as seqio's vocabularies do it.
//
//   const auto vocabulary = ByteVocabulary(/*extra_ids=*/100);
//   const Tokens ids = vocabulary.encode("héllo");
//   vocabulary.decode(ids) == "héllo";
//   for (int32_t id : ids) vocabulary.decode_next(id, state, text);   // the same, as they arrive
//
// A vocabulary knows nothing of tasks, files of examples or models.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::data {

using Tokens = std::vector<int32_t>;

/// Where the decoding of ids that arrive one by one stands. Vocabularies use what they need of it.
struct DecodeState {
  std::string bytes = {};  // that may begin a character
  Tokens ids = {};         // of a text that is known only as a whole
  bool begun = false;      // there is text, or an id that counts as some
  bool ended = false;      // by an end-of-sequence id
};

/// Immutable and safe to use from several threads. Id 0 is padding in all of them.
class Vocabulary {
 public:
  virtual ~Vocabulary() = default;

  /// Ids of UTF-8 text, without an end-of-sequence id.
  virtual Tokens encode(std::string_view text) const = 0;
  /// Text up to the first end-of-sequence id. Ids at or beyond base_vocab_size() become unk.
  std::string decode(std::span<const int32_t> ids) const;
  /// Appends the text that one more id makes certain, whatever follows, at the price of that id
  /// alone. The text of all ids so far, as decode() has it, is what was appended and decode_open().
  void decode_next(int32_t id, DecodeState& state, std::string& text) const;
  /// What the last ids are if nothing follows: bytes of a character that is not complete.
  virtual std::string decode_open(const DecodeState&) const { return {}; }
  /// The ids that decode() turns into text: cut after the first EOS, unknown ones replaced.
  Tokens clean(std::span<const int32_t> ids) const;

  /// Number of ids, extra ids included: the least size of an embedding table.
  virtual int32_t vocab_size() const { return base_vocab_size() + extra_ids(); }
  /// seqio's _base_vocab_size: a SentencePiece vocabulary counts its extra ids here, too.
  virtual int32_t base_vocab_size() const = 0;
  virtual int32_t extra_ids() const { return 0; }
  int32_t pad_id() const { return 0; }
  virtual std::optional<int32_t> eos_id() const = 0;
  virtual std::optional<int32_t> unk_id() const = 0;
  /// None if the vocabulary has none (seqio raises NotImplementedError, SentencePiece says -1).
  virtual std::optional<int32_t> bos_id() const { return std::nullopt; }

  /// Says all that decides its ids; two vocabularies with equal descriptions are interchangeable.
  virtual std::string description() const = 0;
  bool operator==(const Vocabulary& other) const { return description() == other.description(); }

 protected:
  /// decode_next() of an id that clean() has left as it is, and decode() of such ids.
  virtual void append(int32_t id, DecodeState& state, std::string& text) const = 0;
  virtual std::string decode_clean(std::span<const int32_t> ids) const;
  /// What clean() makes of one id.
  int32_t known(int32_t id) const;
};

using VocabularyPtr = std::shared_ptr<const Vocabulary>;

/// ByT5's vocabulary: byte b has id b + 3; pad 0, eos 1, unk 2; extra ids follow 258.
class ByteVocabulary final : public Vocabulary {
 public:
  explicit ByteVocabulary(int32_t extra_ids = 0);
  Tokens encode(std::string_view text) const override;
  int32_t base_vocab_size() const override { return 3 + 256; }
  int32_t extra_ids() const override { return extra_ids_; }
  std::optional<int32_t> eos_id() const override { return 1; }
  std::optional<int32_t> unk_id() const override { return 2; }
  std::string description() const override;

 protected:
  void append(int32_t id, DecodeState& state, std::string& text) const override;
  std::string decode_clean(std::span<const int32_t> ids) const override;

 private:
  int32_t extra_ids_;
};

/// What SentencePiece does to text before it looks for pieces, and back; only fields that are set.
struct NormalizerSpec {
  std::optional<std::string> name = {};
  std::optional<std::string> precompiled_charsmap =
      {};  // bytes; empty: characters stay as they are
  std::optional<bool> add_dummy_prefix = {};
  std::optional<bool> remove_extra_whitespaces = {};
  std::optional<bool> escape_whitespaces = {};
  std::optional<std::string> normalization_rule_tsv = {};
};

/// A SentencePiece model file with `extra_ids` user-defined pieces "▁<extra_id_i>" appended, in
/// falling order of i unless reverse_extra_ids is false, and both of its normalisers changed as
/// `normalizer_spec_overrides` says. Throws kData if the file is missing or damaged.
class SentencePieceVocabulary final : public Vocabulary {
 public:
  explicit SentencePieceVocabulary(std::string sentencepiece_model_file, int32_t extra_ids = 0,
                                   bool reverse_extra_ids = true,
                                   const NormalizerSpec& normalizer_spec_overrides = {});
  ~SentencePieceVocabulary() override;
  Tokens encode(std::string_view text) const override;
  int32_t vocab_size() const override { return base_vocab_size(); }
  int32_t base_vocab_size() const override;
  int32_t extra_ids() const override { return extra_ids_; }
  std::optional<int32_t> eos_id() const override;
  std::optional<int32_t> unk_id() const override;
  std::optional<int32_t> bos_id() const override;
  std::string description() const override;
  const std::string& model_file() const { return file_; }
  /// The id of a piece, the unknown id if there is none.
  int32_t id_of_piece(std::string_view piece) const;
  std::string piece_of_id(int32_t id) const;
  std::string decode_open(const DecodeState& state) const override;

 protected:
  void append(int32_t id, DecodeState& state, std::string& text) const override;
  std::string decode_clean(std::span<const int32_t> ids) const override;

 private:
  struct Model;
  std::string file_;
  int32_t extra_ids_;
  bool reverse_extra_ids_;
  uint32_t checksum_ = 0;  // of pieces and normalisers: equality is by content
  std::unique_ptr<const Model> model_;
};

/// For features that already are ids. encode() reads, decode() writes decimal numbers between
/// spaces.
class PassThroughVocabulary final : public Vocabulary {
 public:
  explicit PassThroughVocabulary(int32_t size, std::optional<int32_t> eos_id = std::nullopt);
  Tokens encode(std::string_view text) const override;
  int32_t base_vocab_size() const override { return size_; }
  std::optional<int32_t> eos_id() const override { return eos_id_; }
  std::optional<int32_t> unk_id() const override { return std::nullopt; }
  std::string description() const override;

 protected:
  void append(int32_t id, DecodeState& state, std::string& text) const override;

 private:
  int32_t size_;
  std::optional<int32_t> eos_id_;
};

}  // namespace quintet::data
