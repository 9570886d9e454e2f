#include "data/huggingface/huggingface_vocabulary.h"

#include <algorithm>

#include "data/vocabularies/utf8.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/crc32c.h"

namespace quintet::data {
namespace {
constexpr int32_t kFirstByteId = 3;
constexpr int32_t kBytes = 256;
}  // namespace

HuggingFaceVocabulary::HuggingFaceVocabulary(std::string directory)
    : parts_(read_tokenizer(directory)) {
  size_ = parts_.model == nullptr ? kFirstByteId + kBytes : parts_.model->size();
  if (parts_.model == nullptr) in_text_ = in_normalized_ = TokenFinder(Spaces::python);
  add_finders();
  description_ = describe(directory);
}

void HuggingFaceVocabulary::add_finders() {
  for (const auto& [id, token] : parts_.added->by_id()) {
    size_ = std::max(size_, id + 1);
    if (token.content.starts_with("<extra_id_")) ++extra_ids_;
    TextPiece piece{token.content};
    if (token.normalized && parts_.normalizer) parts_.normalizer(piece);
    (token.normalized ? in_normalized_ : in_text_).add(std::move(piece.text), token, id);
  }
}

std::string HuggingFaceVocabulary::describe(const std::string& directory) const {
  const auto spiece = std::filesystem::path(directory) / "spiece.model";
  if (parts_.model == nullptr) return ByteVocabulary(extra_ids_).description();
  if (is_there(spiece)) return SentencePieceVocabulary(spiece.string(), extra_ids_).description();
  std::string all;
  for (int32_t id = 0; id < parts_.model->size(); ++id) all += parts_.model->piece(id) + '\n';
  for (const auto& [id, token] : parts_.added->by_id())
    all += fmt::format("{} {}\n", id, token.content);
  return fmt::format("HuggingFaceVocabulary(pieces={}, crc32c={:08x})", size_, crc32c(all));
}

Tokens HuggingFaceVocabulary::encode(std::string_view text) const {
  Tokens ids;
  const std::string valid = drop_bad_utf8(text);
  bool at_start = true;
  for (const TokenOrText& part : in_text_.split(valid)) {
    part.id ? ids.push_back(*part.id) : encode_piece({std::string(part.text), at_start}, ids);
    at_start = false;
  }
  return ids;
}

Tokens HuggingFaceVocabulary::encode_input(std::string_view text) const {
  Tokens ids = encode(text);
  const bool has_eos = parts_.model == nullptr && !ids.empty() && ids.back() == parts_.eos_id;
  if (parts_.adds_eos && parts_.eos_id && !has_eos) ids.push_back(*parts_.eos_id);
  return ids;
}

void HuggingFaceVocabulary::encode_piece(TextPiece piece, Tokens& ids) const {
  if (parts_.normalizer) parts_.normalizer(piece);
  bool at_start = piece.at_start;
  for (const TokenOrText& part : in_normalized_.split(piece.text)) {
    part.id ? ids.push_back(*part.id) : encode_normalized({std::string(part.text), at_start}, ids);
    at_start = false;
  }
}

void HuggingFaceVocabulary::encode_normalized(TextPiece piece, Tokens& ids) const {
  if (parts_.model == nullptr) {
    for (const char c : piece.text) ids.push_back(static_cast<uint8_t>(c) + kFirstByteId);
    return;
  }
  Pieces pieces{std::move(piece)};
  if (parts_.pre_tokenizer) parts_.pre_tokenizer(pieces);
  for (const TextPiece& one : pieces) parts_.model->encode(one.text, ids);
}

std::string HuggingFaceVocabulary::token_text(int32_t id) const {
  const auto added = parts_.added->by_id().find(id);
  if (added != parts_.added->by_id().end()) return added->second.content;
  if (parts_.model != nullptr)
    return id >= 0 && id < parts_.model->size() ? parts_.model->piece(id) : "";
  const int32_t byte = id - kFirstByteId;
  return byte >= 0 && byte < kBytes ? std::string(1, static_cast<char>(byte)) : "";
}

void HuggingFaceVocabulary::append(int32_t id, DecodeState& state, std::string& text) const {
  if (id == parts_.pad_id || id == parts_.eos_id) return;
  const std::string token = token_text(id);
  if (parts_.model == nullptr) {
    state.bytes += token;
    return take_characters(state.bytes, text, "");
  }
  if (token.empty()) return;
  if (const auto more = parts_.decoder.decode_one(token, !state.begun))
    text += *more;
  else
    state.ids.push_back(id);
  state.begun = true;
}

std::string HuggingFaceVocabulary::decode_open(const DecodeState& state) const {
  std::vector<std::string> tokens;
  for (const int32_t id : state.ids) tokens.push_back(token_text(id));
  return tokens.empty() ? "" : parts_.decoder.decode(std::move(tokens));
}

}  // namespace quintet::data
