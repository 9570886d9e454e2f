// SentencePiece's own library does the work. Extra ids and changed normalisers are put into the
// model as wire bytes: messages concatenate, so appended `pieces` fields become the last pieces, and
// fields of an appended normaliser replace those before them. The numbers of fields are those of
// SentencePiece's sentencepiece_model.proto.
#include <sentencepiece_processor.h>
#include <zlib.h>

#include <algorithm>
#include <map>

#include "data/vocabularies/proto_wire.h"
#include "data/vocabularies/utf8.h"
#include "data/vocabularies/vocabulary.h"
#include "data/vocabularies/vocabulary_file.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

constexpr uint32_t kPieces = 1, kNormalizer = 3, kDenormalizer = 5;       // fields of ModelProto
constexpr uint32_t kCharsmap = 2, kAddDummyPrefix = 3, kRemoveExtra = 4;  // of NormalizerSpec
constexpr std::string_view kSpace = "\u2581";        // stands for a space in a piece
constexpr std::string_view kReplacement = "\uFFFD";  // of a byte that is part of no character

/// The message NormalizerSpec.
std::string wire_bytes(const NormalizerSpec& spec) {
  ProtoWriter out;
  const auto text = [&](uint32_t field, const std::optional<std::string>& value) {
    if (value) out.bytes(field, *value);
  };
  const auto flag = [&](uint32_t field, std::optional<bool> value) {
    if (value) out.varint(field, *value);
  };
  text(1, spec.name);
  text(2, spec.precompiled_charsmap);
  flag(3, spec.add_dummy_prefix);
  flag(4, spec.remove_extra_whitespaces);
  flag(5, spec.escape_whitespaces);
  text(6, spec.normalization_rule_tsv);
  return out.str();
}

/// A message SentencePiece: piece = 1, score = 2 (float), type = 3 (enum).
std::string user_defined_piece(const std::string& text) {
  constexpr uint64_t kUserDefined = 4;
  ProtoWriter piece;
  piece.bytes(1, text);
  piece.float32(2, 0);
  piece.varint(3, kUserDefined);
  return piece.str();
}

/// The library's trie ends the program on a piece with a zero byte.
bool has_piece_with_zero(std::string_view model) {
  for (ProtoReader fields(model); fields.next();) {
    if (fields.field() != kPieces || !fields.is_bytes()) continue;
    for (ProtoReader piece(fields.bytes()); piece.next();)
      if (piece.field() == 1 && piece.bytes().find('\0') != std::string_view::npos) return true;
  }
  return false;
}

/// Throws kData naming the file if it cannot be a model that the library reads without harm.
void check_pieces(const std::string& file, std::string_view model) {
  std::string why = "a piece has a zero byte";
  try {
    if (!has_piece_with_zero(model)) return;
  } catch (const Error& error) {
    why = error.what();
  }
  fail(ExitCode::kData,
       "{}: not a usable SentencePiece model: {}; expected a .model file written by `quintet "
       "tokenizer train` or spm_train",
       file, why);
}

using NormalizerFields = std::map<std::pair<uint32_t, uint32_t>, ProtoReader>;

/// The last value of each field of the two normalisers, by the fields' numbers.
NormalizerFields normalizer_fields(std::string_view model) {
  NormalizerFields found;
  for (ProtoReader fields(model); fields.next();) {
    if (fields.field() != kNormalizer && fields.field() != kDenormalizer) continue;
    for (ProtoReader spec(fields.bytes()); spec.next();)
      found.insert_or_assign({fields.field(), spec.field()}, spec);
  }
  return found;
}

/// CRC-32 of what decides ids and text: every piece with its score and kind, and the last value of
/// each field of the two normalisers. A model that holds its extra ids or another normaliser and
/// one to which the same was added are equal.
uint32_t content_checksum(const sentencepiece::SentencePieceProcessor& pieces,
                          const NormalizerFields& normalizers) {
  uLong crc = 0;
  const auto add = [&crc](const void* bytes, size_t size) {
    crc = crc32_z(crc, static_cast<const Bytef*>(bytes), size);
  };
  for (int id = 0; id < pieces.GetPieceSize(); ++id) {
    const std::string& piece = pieces.IdToPiece(id);
    const float score = pieces.GetScore(id);
    const char kind = static_cast<char>(pieces.IsUnknown(id) | pieces.IsControl(id) << 1 |
                                        pieces.IsUnused(id) << 2 | pieces.IsByte(id) << 3);
    add(piece.c_str(), piece.size() + 1);
    add(&score, sizeof score);
    add(&kind, 1);
  }
  for (const auto& [field, value] : normalizers) add(value.whole().data(), value.whole().size());
  return static_cast<uint32_t>(crc);
}

std::optional<int32_t> id_or_none(int id) {
  return id < 0 ? std::nullopt : std::optional<int32_t>(id);
}

}  // namespace

struct SentencePieceVocabulary::Model {
  sentencepiece::SentencePieceProcessor processor;
  std::string unknown;       // text of the unknown id
  bool drops_space = true;   // one at the start of a text
  bool drops_spaces = true;  // all at the start of a text
  bool denormalizes = false;
};

SentencePieceVocabulary::SentencePieceVocabulary(std::string sentencepiece_model_file,
                                                 int32_t extra_ids, bool reverse_extra_ids,
                                                 const NormalizerSpec& normalizer_spec_overrides)
    : file_(std::move(sentencepiece_model_file)),
      extra_ids_(extra_ids),
      reverse_extra_ids_(reverse_extra_ids) {
  QT_CHECK(extra_ids >= 0, "SentencePieceVocabulary: extra_ids {} must not be negative", extra_ids);
  std::string bytes = read_vocabulary_file(file_);
  QT_CHECK_AS(ExitCode::kData, !bytes.empty(),
              "{}: is empty, expected a SentencePiece model (made by `quintet tokenizer train`)",
              file_);
  check_pieces(file_, bytes);
  ProtoWriter more;
  for (int32_t i = 0; i < extra_ids; ++i) {
    const int32_t number = reverse_extra_ids ? extra_ids - 1 - i : i;
    more.bytes(kPieces, user_defined_piece(fmt::format("\u2581<extra_id_{}>", number)));
  }
  const std::string overrides = wire_bytes(normalizer_spec_overrides);
  if (!overrides.empty())
    for (const uint32_t field : {kNormalizer, kDenormalizer}) more.bytes(field, overrides);
  bytes += more.str();
  auto model = std::make_unique<Model>();
  const auto status = model->processor.LoadFromSerializedProto(bytes);
  QT_CHECK_AS(ExitCode::kData, status.ok(),
              "{}: not a usable SentencePiece model: {}; expected a .model file written by "
              "`quintet tokenizer train` or spm_train",
              file_, status.ToString());
  const NormalizerFields normalizers = normalizer_fields(bytes);
  checksum_ = content_checksum(model->processor, normalizers);
  const auto find = [&](uint32_t which, uint32_t field) {
    const auto at = normalizers.find({which, field});
    return at == normalizers.end() ? nullptr : &at->second;
  };
  const auto is_set = [&](uint32_t field) {
    const ProtoReader* value = find(kNormalizer, field);
    return value == nullptr || value->varint() != 0;  // true unless it is said
  };
  model->drops_spaces = is_set(kRemoveExtra);
  model->drops_space = model->drops_spaces || is_set(kAddDummyPrefix);
  const ProtoReader* charsmap = find(kDenormalizer, kCharsmap);
  model->denormalizes = charsmap != nullptr && !charsmap->bytes().empty();
  model->unknown = model->processor.DecodeIds({model->processor.unk_id()});
  model_ = std::move(model);
}

SentencePieceVocabulary::~SentencePieceVocabulary() = default;

Tokens SentencePieceVocabulary::encode(std::string_view text) const {
  Tokens ids;
  const auto status = model_->processor.Encode(text, &ids);
  QT_CHECK_AS(ExitCode::kData, status.ok(), "{}: cannot encode: {}", file_, status.ToString());
  return ids;
}

std::string SentencePieceVocabulary::decode_clean(std::span<const int32_t> ids) const {
  std::string text;
  const auto status = model_->processor.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
  QT_CHECK_AS(ExitCode::kData, status.ok(), "{}: cannot decode: {}", file_, status.ToString());
  return text;
}

/// What the library's Decode does with one piece more.
void SentencePieceVocabulary::append(int32_t id, DecodeState& state, std::string& text) const {
  const sentencepiece::SentencePieceProcessor& pieces = model_->processor;
  if (model_->denormalizes) return state.ids.push_back(id);
  const size_t before = text.size();
  if (pieces.IsByte(id)) {  // "<0xE2>"
    const std::string& piece = pieces.IdToPiece(id);
    state.bytes.push_back(static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16)));
    take_characters(state.bytes, text, kReplacement);
  } else {
    text += decode_open(state);
    state.bytes.clear();
    state.begun = state.begun || text.size() > before;
    if (pieces.IsControl(id)) return;
    if (pieces.IsUnknown(id)) {
      text += model_->unknown;
    } else {
      std::string_view piece = pieces.IdToPiece(id);
      if (!state.begun && model_->drops_space && piece.starts_with(kSpace)) {
        piece.remove_prefix(kSpace.size());
        state.begun = !model_->drops_spaces;
      }
      for (size_t at; (at = piece.find(kSpace)) != std::string_view::npos;) {
        text.append(piece.substr(0, at)).push_back(' ');
        piece.remove_prefix(at + kSpace.size());
      }
      text += piece;
    }
  }
  state.begun = state.begun || text.size() > before;
}

std::string SentencePieceVocabulary::decode_open(const DecodeState& state) const {
  if (model_->denormalizes) return decode_clean(state.ids);
  std::string text;
  for (size_t i = 0; i < state.bytes.size(); ++i) text += kReplacement;
  return text;
}

int32_t SentencePieceVocabulary::base_vocab_size() const {
  return model_->processor.GetPieceSize();
}
std::optional<int32_t> SentencePieceVocabulary::eos_id() const {
  return id_or_none(model_->processor.eos_id());
}
std::optional<int32_t> SentencePieceVocabulary::unk_id() const {
  return id_or_none(model_->processor.unk_id());
}
std::optional<int32_t> SentencePieceVocabulary::bos_id() const {
  return id_or_none(model_->processor.bos_id());
}
int32_t SentencePieceVocabulary::id_of_piece(std::string_view piece) const {
  return model_->processor.PieceToId(piece);
}
std::string SentencePieceVocabulary::piece_of_id(int32_t id) const {
  return model_->processor.IdToPiece(id);
}

std::string SentencePieceVocabulary::description() const {
  return fmt::format("SentencePieceVocabulary(pieces={}, crc32={:08x})", base_vocab_size(),
                     checksum_);
}

}  // namespace quintet::data
