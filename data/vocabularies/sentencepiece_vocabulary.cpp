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
  checksum_ =
      static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
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
  return fmt::format("SentencePieceVocabulary(pieces={}, extra_ids={}{}, crc32={:08x})",
                     base_vocab_size(), extra_ids_, reverse_extra_ids_ ? "" : " forward",
                     checksum_);
}

}  // namespace quintet::data
