#pragma once
// What a SentencePiece model holds, for those who encode in another way than its library.
//
//   const SpieceFile file = read_spiece_file("/models/t5-small/spiece.model");

#include <filesystem>
#include <string>
#include <vector>

#include "data/huggingface/added_tokens.h"
#include "data/huggingface/unigram_model.h"

namespace quintet::data {

struct SpieceFile {
  std::vector<ScoredPiece> pieces;
  std::vector<AddedToken> tokens;  // control and user-defined pieces
  std::string charsmap;            // of the normalizer; empty: characters stay as they are
};

/// Throws kData naming the file if it is missing or malformed.
SpieceFile read_spiece_file(const std::filesystem::path& file);

}  // namespace quintet::data
