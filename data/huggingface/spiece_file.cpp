#include "data/huggingface/spiece_file.h"

#include "data/vocabularies/proto_wire.h"
#include "data/vocabularies/utf8.h"
#include "data/vocabularies/vocabulary_file.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

// Fields of sentencepiece_model.proto.
constexpr uint32_t kPieces = 1, kNormalizer = 3, kCharsmap = 2;
constexpr uint32_t kText = 1, kScore = 2, kType = 3;
constexpr uint64_t kControl = 3, kUserDefined = 4;

void read_piece(std::string_view message, SpieceFile& file) {
  ScoredPiece piece;
  uint64_t type = 1;
  for (ProtoReader fields(message); fields.next();) {
    if (fields.field() == kText) piece.text = fields.bytes();
    if (fields.field() == kScore)
      piece.score =
          static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(fields.varint())));
    if (fields.field() == kType) type = fields.varint();
  }
  if (type == kControl || type == kUserDefined)
    file.tokens.push_back({.content = piece.text, .special = type == kControl});
  QT_CHECK_AS(ExitCode::kData, find_bad_utf8(piece.text) == std::string::npos,
              "piece {} is not UTF-8", file.pieces.size());
  file.pieces.push_back(std::move(piece));
}

}  // namespace

SpieceFile read_spiece_file(const std::filesystem::path& path) {
  const std::string bytes = read_vocabulary_file(path.string());
  SpieceFile file;
  try {
    for (ProtoReader fields(bytes); fields.next();) {
      if (fields.field() == kPieces && fields.is_bytes()) read_piece(fields.bytes(), file);
      if (fields.field() != kNormalizer || !fields.is_bytes()) continue;
      for (ProtoReader spec(fields.bytes()); spec.next();)
        if (spec.field() == kCharsmap) file.charsmap = spec.bytes();
    }
  } catch (const Error& error) {
    fail(ExitCode::kData, "{}: not a usable SentencePiece model: {}", path.string(), error.what());
  }
  return file;
}

}  // namespace quintet::data
