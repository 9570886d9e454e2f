#pragma once
// The `pre_tokenizer` of tokenizer.json: text is split into pieces, each of which the model takes by
// itself.
//
//   Pieces pieces = {{"to be", true}};
//   read_pre_tokenizer(json["pre_tokenizer"])(pieces);   // {"▁to", true}, {"▁be", false}

#include <vector>

#include "data/huggingface/normalizer.h"

namespace quintet::data {

using Pieces = std::vector<TextPiece>;
/// Replaces the pieces by theirs. Empty: nothing.
using PreTokenizer = std::function<void(Pieces&)>;

/// Of the kinds Sequence, WhitespaceSplit, Metaspace and Digits. Throws kData naming the field for
/// another.
PreTokenizer read_pre_tokenizer(const Json& json);

/// T5's: words, each with `▁` before it.
PreTokenizer t5_pre_tokenizer();

}  // namespace quintet::data
