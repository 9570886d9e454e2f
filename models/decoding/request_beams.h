#pragma once
// Beam search of one request, as transformers 5 does it. Private to request.cpp.

#include <optional>

#include "models/decoding/request.h"

namespace quintet::decoding {

std::unique_ptr<RequestDecoder> start_beams(DecodingRequest request, int64_t vocab_size);

/// Why the sequence, which has just got its last token, ends there, if it does; `stops` is its own.
std::optional<FinishReason> ended(const DecodingRequest& request, std::span<const int32_t> history,
                                  const std::function<bool(int32_t)>& stops);

}  // namespace quintet::decoding
