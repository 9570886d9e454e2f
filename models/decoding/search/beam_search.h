#pragma once
// Beam search: T5X's decoding.beam_search with all its arguments.
//
//   const Decodes out = beam_search(prompts, model, eos_id, {.num_decodes = 4, .alpha = 0.6f});
//
// Each item keeps num_decodes live beams and as many finished ones; a step looks at the 2 *
// num_decodes best continuations, so that even if the best half all end, the live set stays full.
// Beams come in increasing score; finished slots never filled hold zeros and -1e7 (a padding); an
// item that finished nothing returns its live beams with their log probabilities. Items whose
// finished set can no longer change rest, which changes no result.

#include <optional>

#include "models/decoding/search/token_model.h"

namespace quintet::decoding {

struct BeamOptions {
  int64_t num_decodes = 4;
  float alpha = 0.6f;                          // of the brevity penalty
  std::optional<int64_t> max_decode_len = {};  // of the result; the inputs' length if not given
  int64_t max_decode_step = -1;                // at most so many steps, if positive
  float min_log_prob = kNegInf;                // stop when no live beam is above
  int64_t cache_offset = 0;                    // as in SampleOptions
  /// [batch] length of each prompt, whose cache is prefilled; without it prompts are fed token by
  /// token.
  std::optional<std::vector<int32_t>> initial_index = {};
};

/// ((5 + length) / 6) ^ alpha (arXiv:1609.08144, equation 14).
float brevity_penalty(float alpha, float length);

/// Throws a usage error for sizes that do not fit. Result length: max_decode_len.
Decodes beam_search(const Prompts& inputs, TokenModel& model, int32_t eos_id,
                    const BeamOptions& options);

}  // namespace quintet::decoding
