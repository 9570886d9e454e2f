#pragma once
// Given tokens as a search: each step reads the next of them, whatever is likeliest, and notes how
// likely it was. So scores are computed in one batch with what others generate.

#include "models/decoding/request.h"

namespace quintet::decoding {

/// One hypothesis with the targets as its tokens and the model's log probabilities; `alternatives`
/// of the likeliest tokens each; `start` is read before them. Throws a usage error for no targets and tokens outside the
/// vocabulary.
std::unique_ptr<RequestDecoder> start_scoring(TokenList targets, int64_t vocab_size,
                                              int64_t alternatives = 0, RowStep start = {});

}  // namespace quintet::decoding
