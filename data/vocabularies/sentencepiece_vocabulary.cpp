// SentencePiece's own library does the work. Extra ids and changed normalisers are put into the
// model by writing protobuf wire bytes: messages concatenate, so appended `pieces` fields become
// the last pieces, and fields of an appended normaliser replace those before them. No protobuf
// library is needed for that, and Debian's cannot be linked beside libsentencepiece (both export
// one version of the same symbols and crash).
#include <sentencepiece_processor.h>
#include <zlib.h>

#include <algorithm>
#include <map>

#include "data/vocabulary.h"
#include "runtime/base/check.h"
#include "runtime/base/json.h"

namespace quintet::data {
namespace {

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>((value & 0x7F) | 0x80));
  out.push_back(static_cast<char>(value));
}

void append_bytes(std::string& out, int field, std::string_view bytes) {
  constexpr int kLengthDelimited = 2;
  append_varint(out, static_cast<uint64_t>(field << 3 | kLengthDelimited));
  append_varint(out, bytes.size());
  out += bytes;
}

constexpr int kNormalizer = 3, kDenormalizer = 5;  // fields of ModelProto

/// The message NormalizerSpec.
std::string wire_bytes(const NormalizerSpec& spec) {
  std::string out;
  const auto text = [&](int field, const std::optional<std::string>& value) {
    if (value) append_bytes(out, field, *value);
  };
  const auto flag = [&](int field, std::optional<bool> value) {
    if (!value) return;
    append_varint(out, static_cast<uint64_t>(field << 3));
    append_varint(out, *value);
  };
  text(1, spec.name);
  text(2, spec.precompiled_charsmap);
  flag(3, spec.add_dummy_prefix);
  flag(4, spec.remove_extra_whitespaces);
  flag(5, spec.escape_whitespaces);
  text(6, spec.normalization_rule_tsv);
  return out;
}

/// ModelProto.pieces (field 1): SentencePiece{piece = 1, score = 2 (float), type = 3 (enum)}.
void append_user_defined_piece(std::string& model, const std::string& piece) {
  constexpr char kFixed32Field2 = (2 << 3) | 5, kVarintField3 = 3 << 3, kUserDefined = 4;
  std::string message;
  append_bytes(message, 1, piece);
  message.push_back(kFixed32Field2);
  message.append(4, '\0');  // score 0.0
  message.push_back(kVarintField3);
  message.push_back(kUserDefined);
  append_bytes(model, 1, message);
}

/// Takes a varint off the front; the library has checked the message.
uint64_t take_varint(std::string_view& message) {
  uint64_t value = 0;
  for (int shift = 0; !message.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(message.front());
    message.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) break;
  }
  return value;
}

/// Takes a field off the front: its number, and its bytes with the key that says so.
std::pair<uint64_t, std::string_view> take_field(std::string_view& message) {
  constexpr uint64_t kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5;
  const std::string_view whole = message;
  const uint64_t key = take_varint(message), type = key & 7;
  const uint64_t size = type == kLengthDelimited ? take_varint(message)
                        : type == kFixed64       ? 8
                        : type == kFixed32       ? 4
                                                 : 0;
  if (type == 0) take_varint(message);
  message.remove_prefix(std::min<size_t>(size, message.size()));
  return {key >> 3, whole.substr(0, whole.size() - message.size())};
}

/// CRC-32 of what decides ids and text: every piece with its score and kind, and the last value of
/// each field of the two normalisers. A model that holds its extra ids or another normaliser and
/// one to which the same was added are equal.
uint32_t content_checksum(const sentencepiece::SentencePieceProcessor& pieces,
                          std::string_view model) {
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
  std::map<std::pair<uint64_t, uint64_t>, std::string_view> normalizers;
  while (!model.empty()) {
    auto [field, bytes] = take_field(model);
    if (field != kNormalizer && field != kDenormalizer) continue;
    take_varint(bytes);  // key
    for (take_varint(bytes); !bytes.empty();) {
      const auto [inner, value] = take_field(bytes);
      normalizers[{field, inner}] = value;
    }
  }
  for (const auto& [field, value] : normalizers) add(value.data(), value.size());
  return static_cast<uint32_t>(crc);
}

std::optional<int32_t> id_or_none(int id) {
  return id < 0 ? std::nullopt : std::optional<int32_t>(id);
}

}  // namespace

struct SentencePieceVocabulary::Model {
  sentencepiece::SentencePieceProcessor processor;
};

SentencePieceVocabulary::SentencePieceVocabulary(std::string sentencepiece_model_file,
                                                 int32_t extra_ids, bool reverse_extra_ids,
                                                 const NormalizerSpec& normalizer_spec_overrides)
    : file_(std::move(sentencepiece_model_file)),
      extra_ids_(extra_ids),
      reverse_extra_ids_(reverse_extra_ids) {
  QT_CHECK(extra_ids >= 0, "SentencePieceVocabulary: extra_ids {} must not be negative", extra_ids);
  std::string bytes = read_file(file_);
  QT_CHECK_AS(ExitCode::kData, !bytes.empty(),
              "{}: is empty, expected a SentencePiece model (made by `quintet tokenizer train`)",
              file_);
  for (int32_t i = 0; i < extra_ids; ++i) {
    const int32_t number = reverse_extra_ids ? extra_ids - 1 - i : i;
    append_user_defined_piece(bytes, fmt::format("\u2581<extra_id_{}>", number));
  }
  const std::string overrides = wire_bytes(normalizer_spec_overrides);
  if (!overrides.empty())
    for (const int field : {kNormalizer, kDenormalizer}) append_bytes(bytes, field, overrides);
  auto model = std::make_unique<Model>();
  const auto status = model->processor.LoadFromSerializedProto(bytes);
  QT_CHECK_AS(ExitCode::kData, status.ok(),
              "{}: not a usable SentencePiece model: {}; expected a .model file written by "
              "`quintet tokenizer train` or spm_train",
              file_, status.ToString());
  checksum_ = content_checksum(model->processor, bytes);
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
