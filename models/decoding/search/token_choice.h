#pragma once
// Choosing one token of a row, for one request: the result is a function of the row, the request's
// seed and the token's place alone, whatever else is computed at the same time.
//
//   const SamplingParameters parameters{.temperature = 0.7f, .top_p = 0.9f, .seed = 17};
//   const TokenChoice next = choose_token(row, parameters, /*decode=*/0, /*position=*/3);

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/threefry.h"

namespace quintet::decoding {

struct SamplingParameters {
  float temperature = 0;  // 0: the likeliest token
  int64_t top_k = 0;      // sample from the k likeliest; 0: from all
  float top_p = 1;        // from the fewest likely ones that have this mass
  uint64_t seed = 0;
  int64_t alternatives = 0;  // how many of the likeliest tokens a choice lists

  /// Throws a usage error naming a value out of its range.
  void check() const;
  bool greedy() const { return temperature <= 1e-4f; }
};

struct TokenLogProb {
  int32_t token = 0;
  float log_prob = 0;
};

struct TokenChoice {
  int32_t token = 0;
  float log_prob = 0;                  // of what was drawn from: after temperature, top_k and top_p
  float model_log_prob = 0;            // before them
  std::vector<TokenLogProb> top = {};  // before them; likeliest first
};

/// The `count` likeliest tokens of softmax(row), ties by token.
std::vector<TokenLogProb> likeliest(std::span<const float> row, int64_t count);

/// Key of the draw of a request's decode number `decode` for its token number `position`.
Key draw_key(uint64_t seed, int64_t decode, int64_t position);

/// Changes row, logits [vocab]. Temperature, top_k and top_p act in transformers' order; ties with
/// the last token kept are kept.
TokenChoice choose_token(std::span<float> row, const SamplingParameters& parameters, int64_t decode,
                         int64_t position);

}  // namespace quintet::decoding
