#include "data/vocabularies/vocabulary.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "data/vocabularies/utf8.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {
constexpr int32_t kFirstByteId = 3;  // after pad, eos and unk
}

int32_t Vocabulary::known(int32_t id) const {
  return id >= 0 && id < base_vocab_size() ? id : unk_id().value_or(id);
}

Tokens Vocabulary::clean(std::span<const int32_t> ids) const {
  Tokens kept(ids.begin(), ids.end());
  for (int32_t& id : kept) id = known(id);
  if (const auto eos = eos_id()) {
    const auto end = std::find(kept.begin(), kept.end(), *eos);
    if (end != kept.end()) kept.erase(end + 1, kept.end());
  }
  return kept;
}

std::string Vocabulary::decode(std::span<const int32_t> ids) const {
  const Tokens kept = clean(ids);
  return decode_clean(kept);
}

std::string Vocabulary::decode_clean(std::span<const int32_t> ids) const {
  DecodeState state;
  std::string text;
  for (int32_t id : ids) append(id, state, text);
  return text + decode_open(state);
}

void Vocabulary::decode_next(int32_t id, DecodeState& state, std::string& text) const {
  if (state.ended) return;
  id = known(id);
  append(id, state, text);
  state.ended = id == eos_id();
}

ByteVocabulary::ByteVocabulary(int32_t extra_ids) : extra_ids_(extra_ids) {
  QT_CHECK(extra_ids >= 0, "ByteVocabulary: extra_ids {} must not be negative", extra_ids);
}

Tokens ByteVocabulary::encode(std::string_view text) const {
  Tokens ids(text.size());
  std::transform(text.begin(), text.end(), ids.begin(),
                 [](char c) { return static_cast<uint8_t>(c) + kFirstByteId; });
  return ids;
}

void ByteVocabulary::append(int32_t id, DecodeState& state, std::string& text) const {
  if (id < kFirstByteId || id >= base_vocab_size()) return;
  state.bytes.push_back(static_cast<char>(id - kFirstByteId));
  take_characters(state.bytes, text, "");
}

std::string ByteVocabulary::decode_clean(std::span<const int32_t> ids) const {
  std::string bytes;
  for (int32_t id : ids)
    if (id >= kFirstByteId && id < base_vocab_size())
      bytes.push_back(static_cast<char>(id - kFirstByteId));
  return drop_bad_utf8(bytes);
}

std::string ByteVocabulary::description() const {
  return fmt::format("ByteVocabulary(extra_ids={})", extra_ids_);
}

PassThroughVocabulary::PassThroughVocabulary(int32_t size, std::optional<int32_t> eos_id)
    : size_(size), eos_id_(eos_id) {
  QT_CHECK(size >= 0, "PassThroughVocabulary: size {} must not be negative", size);
}

Tokens PassThroughVocabulary::encode(std::string_view text) const {
  Tokens ids;
  const char* at = text.data();
  const char* end = at + text.size();
  while (true) {
    while (at != end && *at == ' ') ++at;
    if (at == end) return ids;
    int32_t id = 0;
    const auto [stop, error] = std::from_chars(at, end, id);
    QT_CHECK_AS(ExitCode::kData, error == std::errc() && (stop == end || *stop == ' '),
                "PassThroughVocabulary: '{}' is not a list of numbers between spaces", text);
    ids.push_back(id);
    at = stop;
  }
}

void PassThroughVocabulary::append(int32_t id, DecodeState& state, std::string& text) const {
  text += std::exchange(state.begun, true) ? " " : "";
  text += fmt::format("{}", id);
}

std::string PassThroughVocabulary::description() const {
  return fmt::format("PassThroughVocabulary(size={}, eos_id={})", size_,
                     eos_id_ ? std::to_string(*eos_id_) : "None");
}

}  // namespace quintet::data
