// SentencePiece's own library does the work. Extra ids are put into the model by writing protobuf
// wire bytes: messages concatenate, so appended `pieces` fields become the last pieces. No protobuf
// library is needed for that, and Debian's cannot be linked beside libsentencepiece (both export
// one version of the same symbols and crash).
#include <sentencepiece_processor.h>
#include <zlib.h>

#include <bit>
#include <cstring>

#include "data/vocabulary.h"
#include "runtime/base/check.h"
#include "runtime/base/json.h"

namespace quintet::data {
namespace {

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>((value & 0x7F) | 0x80));
  out.push_back(static_cast<char>(value));
}

/// ModelProto.pieces (field 1): SentencePiece{piece = 1, score = 2 (float), type = 3 (enum)}.
void append_user_defined_piece(std::string& model, const std::string& piece) {
  constexpr char kLengthDelimited1 = (1 << 3) | 2, kFixed32Field2 = (2 << 3) | 5,
                 kVarintField3 = 3 << 3, kUserDefined = 4;
  std::string message;
  message.push_back(kLengthDelimited1);
  append_varint(message, piece.size());
  message += piece;
  message.push_back(kFixed32Field2);
  message.append(4, '\0');  // score 0.0
  message.push_back(kVarintField3);
  message.push_back(kUserDefined);
  model.push_back(kLengthDelimited1);
  append_varint(model, message.size());
  model += message;
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

/// CRC-32 of what decides ids and text: every piece with its score and kind, and the two
/// normalisers (ModelProto's fields 3 and 5). A model that holds its extra ids and one to which the
/// same ids were added are equal.
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
  while (!model.empty()) {
    constexpr uint64_t kLengthDelimited = 2, kNormalizer = 3, kDenormalizer = 5;
    const uint64_t key = take_varint(model), field = key >> 3;
    if ((key & 7) != kLengthDelimited) break;  // ModelProto has none
    const uint64_t size = take_varint(model);
    const std::string_view value = model.substr(0, size);
    model.remove_prefix(value.size());
    if (field == kNormalizer || field == kDenormalizer) add(value.data(), value.size());
  }
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
                                                 int32_t extra_ids, bool reverse_extra_ids)
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
