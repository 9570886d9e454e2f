#pragma once
// The `normalizer` of tokenizer.json: what happens to text before it is split.
//
//   const Normalizer normalizer = read_normalizer(json["normalizer"]);
//   TextPiece piece{"a  b", true};
//   normalizer(piece);

#include <functional>
#include <string>

#include "runtime/base/formats/json.h"

namespace quintet::data {

/// UTF-8.
struct TextPiece {
  std::string text;
  // Of all the text that is encoded. What a normalizer puts in place of several characters there, or after
  // those that it takes away, is not.
  bool at_start = false;
};
/// Changes a piece. Empty: nothing.
using Normalizer = std::function<void(TextPiece&)>;

/// Of the kinds Sequence, Precompiled, Replace, Strip, Lowercase, Prepend, NFC, NFD, NFKC, NFKD and
/// StripAccents. Throws kData naming the field for another kind, and for a regular expression that does
/// not mean the same here.
Normalizer read_normalizer(const Json& json);
/// SentencePiece's character map; empty bytes: nothing.
Normalizer charsmap_normalizer(const std::string& bytes, const std::string& where);
/// The bytes of a normalizer of kind Precompiled.
std::string charsmap_bytes(const Json& json);

}  // namespace quintet::data
