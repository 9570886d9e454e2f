#pragma once
// The Unigram model of the tokenizers library: the likeliest way to put a text together from pieces.
//
//   const UnigramModel model({{"<unk>", 0}, {"▁a", -1.5}}, /*unk_id=*/0, /*byte_fallback=*/false);
//   model.encode("▁a", ids);   // appends 1
//
// Source: huggingface/tokenizers, models/unigram. Where it differs from SentencePiece: scores are added
// in double precision, unknown characters in a row are one id.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::data {

struct ScoredPiece {
  std::string text;
  double score = 0;
};

class UnigramModel {
 public:
  /// The index of a piece is its id. Throws kData naming `where` for an unk_id that is no piece.
  UnigramModel(std::vector<ScoredPiece> pieces, std::optional<int32_t> unk_id, bool byte_fallback,
               const std::string& where);

  /// Appends the ids of UTF-8 text. Throws kData if some of it is unknown and there is no id for that.
  void encode(std::string_view text, std::vector<int32_t>& ids) const;
  int32_t size() const { return static_cast<int32_t>(pieces_.size()); }
  const std::string& piece(int32_t id) const { return pieces_[static_cast<size_t>(id)].text; }
  std::optional<int32_t> find(std::string_view piece) const;
  std::optional<int32_t> unk_id() const { return unk_id_; }

 private:
  struct Node;
  /// Calls work(id, bytes) with every piece that `text` begins with.
  template <typename Work>
  void for_each_prefix(std::string_view text, Work work) const;
  std::vector<Node> best_paths(std::string_view text) const;
  void append_unknown(std::string_view text, std::vector<int32_t>& ids) const;

  std::vector<ScoredPiece> pieces_;
  std::vector<int32_t> sorted_;  // ids by text, of equal texts the last
  std::optional<int32_t> unk_id_;
  bool byte_fallback_;
  double unknown_score_ = 0;
  size_t first_[257] = {};  // sorted_ by first byte
};

}  // namespace quintet::data
