#pragma once
// T5X's decode functions: the two that it has, and one of the user's own.
//
//   DecodeFn fn = OwnDecodeFn{.num_decodes = 2, .decode_rng = {}, .initial_index = {}, .search = my_search};

#include <variant>

#include "models/decoding/search/beam_search.h"
#include "models/decoding/search/temperature_sample.h"

namespace quintet::decoding {

/// A search that asks the model for logits step by step (TokenModel).
struct OwnDecodeFn {
  int64_t num_decodes = 1;
  Key decode_rng = {};
  std::optional<std::vector<int32_t>> initial_index =
      {};  // [batch] tokens the cache is filled with
  std::function<Decodes(const Prompts&, TokenModel&, int32_t eos_id, const OwnDecodeFn&)> search =
      {};
};

using DecodeFn = std::variant<BeamOptions, SampleOptions, OwnDecodeFn>;

}  // namespace quintet::decoding
