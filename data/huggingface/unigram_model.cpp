#include "data/huggingface/unigram_model.h"

#include <algorithm>
#include <numeric>

#include "data/huggingface/characters.h"
#include "runtime/base/check.h"

namespace quintet::data {

struct UnigramModel::Node {
  double score = 0;
  size_t begin = std::string::npos;  // of the piece that ends here; npos: nothing does
  std::optional<int32_t> id = {};
};

UnigramModel::UnigramModel(std::vector<ScoredPiece> pieces, std::optional<int32_t> unk_id,
                           bool byte_fallback, const std::string& where)
    : pieces_(std::move(pieces)), unk_id_(unk_id), byte_fallback_(byte_fallback) {
  QT_CHECK_AS(ExitCode::kData, !pieces_.empty(), "{}: has no pieces", where);
  QT_CHECK_AS(ExitCode::kData, !unk_id || (*unk_id >= 0 && *unk_id < size()),
              "{}: unk_id {} is none of the {} pieces", where, unk_id.value_or(0), size());
  constexpr double kUnknownPenalty = 10;
  double least = pieces_.front().score;
  for (const ScoredPiece& piece : pieces_) least = std::min(least, piece.score);
  unknown_score_ = least - kUnknownPenalty;

  sorted_.resize(pieces_.size());
  std::iota(sorted_.begin(), sorted_.end(), 0);
  std::sort(sorted_.begin(), sorted_.end(), [&](int32_t a, int32_t b) {
    const int order = piece(a).compare(piece(b));
    return order != 0 ? order < 0 : a > b;
  });
  const auto same = [&](int32_t a, int32_t b) { return piece(a) == piece(b); };
  sorted_.erase(std::unique(sorted_.begin(), sorted_.end(), same), sorted_.end());
  if (piece(sorted_.front()).empty()) sorted_.erase(sorted_.begin());
  for (const int32_t id : sorted_) ++first_[static_cast<unsigned char>(piece(id)[0]) + 1];
  std::partial_sum(std::begin(first_), std::end(first_), std::begin(first_));
}

template <typename Work>
void UnigramModel::for_each_prefix(std::string_view text, Work work) const {
  const auto byte = static_cast<unsigned char>(text[0]);
  auto low = sorted_.begin() + static_cast<int64_t>(first_[byte]);
  auto high = sorted_.begin() + static_cast<int64_t>(first_[byte + 1]);
  for (size_t size = 1; low != high; ++size) {
    // All in [low, high) begin with these bytes; one that is no longer is the first.
    if (piece(*low).size() == size) work(*low++, size);
    if (size == text.size()) return;
    const auto next = static_cast<unsigned char>(text[size]);
    low = std::partition_point(
        low, high, [&](int32_t id) { return static_cast<unsigned char>(piece(id)[size]) < next; });
    high = std::partition_point(
        low, high, [&](int32_t id) { return static_cast<unsigned char>(piece(id)[size]) == next; });
  }
}

std::vector<UnigramModel::Node> UnigramModel::best_paths(std::string_view text) const {
  std::vector<Node> ends(text.size() + 1);
  const auto offer = [&](size_t begin, size_t end, double score, std::optional<int32_t> id) {
    Node& node = ends[end];
    score += ends[begin].score;
    if (node.begin == std::string::npos || score > node.score) node = {score, begin, id};
  };
  for (size_t at = 0; at < text.size();) {
    const size_t character = character_size(text.substr(at));
    bool known = false;
    for_each_prefix(text.substr(at), [&](int32_t id, size_t size) {
      offer(at, at + size, pieces_[static_cast<size_t>(id)].score, id);
      known = known || size == character;
    });
    if (!known) offer(at, at + character, unknown_score_, unk_id_);
    at += character;
  }
  return ends;
}

void UnigramModel::append_unknown(std::string_view text, std::vector<int32_t>& ids) const {
  if (const auto found = find(text)) return ids.push_back(*found);
  if (byte_fallback_) {
    std::vector<int32_t> bytes;
    for (const char c : text)
      if (const auto id = find(fmt::format("<0x{:02X}>", static_cast<unsigned char>(c))))
        bytes.push_back(*id);
    if (bytes.size() == text.size()) {
      ids.insert(ids.end(), bytes.begin(), bytes.end());
      return;
    }
  }
  QT_CHECK_AS(ExitCode::kData, unk_id_.has_value(),
              "'{}' is in no piece of the vocabulary, and tokenizer.json has no unk_id", text);
  ids.push_back(*unk_id_);
}

void UnigramModel::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const std::vector<Node> ends = best_paths(text);
  struct Part {
    size_t begin, end;
    std::optional<int32_t> id;
  };
  std::vector<Part> parts;  // last first
  const auto is_unknown = [&](std::optional<int32_t> id) { return !id || id == unk_id_; };
  for (size_t end = text.size(); end > 0; end = ends[end].begin) {
    const Node& node = ends[end];
    if (unk_id_ && node.id == unk_id_ && !parts.empty() && parts.back().id == unk_id_)
      parts.back().begin = node.begin;
    else
      parts.push_back({node.begin, end, node.id});
  }
  for (size_t i = parts.size(); i-- > 0;)
    if (is_unknown(parts[i].id))
      append_unknown(text.substr(parts[i].begin, parts[i].end - parts[i].begin), ids);
    else
      ids.push_back(*parts[i].id);
}

std::optional<int32_t> UnigramModel::find(std::string_view text) const {
  const auto found =
      std::lower_bound(sorted_.begin(), sorted_.end(), text,
                       [&](int32_t id, std::string_view t) { return piece(id) < t; });
  if (found == sorted_.end() || piece(*found) != text) return std::nullopt;
  return *found;
}

}  // namespace quintet::data
