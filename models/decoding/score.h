#pragma once
// Log probabilities of given tokens: teacher forcing through a TokenModel.
//
//   decoder.begin(inputs, items, length, {.num_decodes = 1, .max_length = longest});
//   const auto log_probs = score_tokens(decoder, targets);        // [items][tokens of the item]

#include "models/decoding/token_model.h"

namespace quintet::decoding {

/// Of each item's tokens, each given those before it; `start` is read first. The model has begun
/// with one decode an item. Throws kData for a token outside the vocabulary.
std::vector<std::vector<float>> score_tokens(TokenModel& model,
                                             std::span<const std::vector<int32_t>> targets,
                                             int32_t start = 0);

}  // namespace quintet::decoding
