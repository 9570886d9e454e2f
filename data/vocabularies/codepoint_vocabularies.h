#pragma once
// seqio's vocabularies whose ids are characters, or whole texts.
//
//   FullCodepointVocabulary{}.encode("hé") == Tokens{104, 233};
//   UnigramVocabulary({"no", "yes"}).encode("yes") == Tokens{2};       // 0 is PAD, the last UNK

#include <map>
#include <string>
#include <vector>

#include "data/vocabularies/vocabulary.h"

namespace quintet::data {

/// Every code point is its own id; EOS is U+E005, padding U+0000.
class FullCodepointVocabulary final : public Vocabulary {
 public:
  static constexpr int32_t kEos = 0xE005, kLargest = 0x10FFFF;
  Tokens encode(std::string_view text) const override;
  int32_t base_vocab_size() const override { return kLargest; }
  std::optional<int32_t> eos_id() const override { return kEos; }
  std::optional<int32_t> unk_id() const override { return std::nullopt; }
  std::string description() const override { return "FullCodepointVocabulary()"; }

 protected:
  void append(int32_t id, DecodeState& state, std::string& text) const override;
};

/// Pad 0, EOS 1, unknown 2 (U+E004 in text), then the given code points in their order.
class PartialCodepointVocabulary final : public Vocabulary {
 public:
  explicit PartialCodepointVocabulary(const Tokens& codepoints, int32_t extra_ids = 0);
  /// One decimal code point a line. Throws kData naming the line that is none.
  static PartialCodepointVocabulary create_from_file(const std::string& vocab_file,
                                                     int32_t extra_ids = 0);
  Tokens encode(std::string_view text) const override;
  int32_t base_vocab_size() const override { return static_cast<int32_t>(codepoints_.size()); }
  int32_t extra_ids() const override { return extra_ids_; }
  std::optional<int32_t> eos_id() const override { return 1; }
  std::optional<int32_t> unk_id() const override { return 2; }
  std::string description() const override;
  const std::string& vocab_file() const { return vocab_file_; }  // empty: made of numbers

 protected:
  void append(int32_t id, DecodeState& state, std::string& text) const override;

 private:
  Tokens codepoints_;               // by id
  std::map<int32_t, int32_t> ids_;  // by code point
  int32_t extra_ids_;
  std::string vocab_file_;
};

/// Ids of whole texts, or of the words between spaces.
class UnigramVocabulary final : public Vocabulary {
 public:
  explicit UnigramVocabulary(std::vector<std::string> unigrams, bool split_on_space = false);
  Tokens encode(std::string_view text) const override;
  int32_t base_vocab_size() const override { return static_cast<int32_t>(unigrams_.size()); }
  std::optional<int32_t> eos_id() const override { return std::nullopt; }
  std::optional<int32_t> unk_id() const override { return base_vocab_size() - 1; }
  std::string description() const override;

 protected:
  void append(int32_t id, DecodeState& state, std::string& text) const override;

 private:
  std::vector<std::string> unigrams_;  // by id
  std::map<std::string, int32_t, std::less<>> ids_;
  bool split_on_space_;
};

}  // namespace quintet::data
