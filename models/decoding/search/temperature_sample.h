#pragma once
// Greedy decoding and sampling: T5X's decoding.temperature_sample with all its arguments.
//
//   const Decodes out = temperature_sample(prompts, model, eos_id, {.temperature = {0}});   // greedy
//
// Draws follow jax.random.categorical under the partitionable Threefry scheme: the key is split
// once a step, and row r, token v take element r * vocab + v of the noise. Rows that have ended
// rest, which changes no result.

#include <functional>
#include <optional>

#include "models/decoding/search/token_model.h"
#include "runtime/base/threefry.h"

namespace quintet::decoding {

/// The state of the loop, as callbacks see it. rows = batch * num_decodes.
struct SamplingState {
  int64_t step = 0;
  int64_t length = 0;              // of the inputs; sequences have two more columns
  std::vector<int32_t> cur_index;  // [rows]
  std::vector<int32_t> sequences;  // [rows, length + 2]
  std::vector<int32_t> cur_token;  // [rows]
  std::vector<uint8_t> ended;      // [rows]
  std::vector<float> log_prob;     // [rows]
  Key rng;
};

struct SampleOptions {
  Key decode_rng{0, 0};
  int64_t num_decodes = 1;
  std::vector<float> temperature{1.0f};  // one, or one for each item; at most 1e-4: greedy
  int64_t topk = 1;                      // 0: all tokens
  float topp = 0;                        // 0: off; not together with topk
  /// Axis of the batch in a scanned cache. Accepted for the signature's sake: ours has no such
  /// axis.
  int64_t cache_offset = 0;
  std::optional<std::vector<int32_t>> initial_index =
      {};                                        // [batch] where decoding starts, cache prefilled
  std::optional<int64_t> max_decode_steps = {};  // counted after the prompt
  std::optional<int64_t> max_decode_steps_hard_limit = {};
  bool rescale_log_probs = true;  // score what was drawn from, after temperature and filters
  /// Called before each step and at the end.
  std::function<void(SamplingState&)> state_callback_fn = {};
  /// Called with logits [rows, vocab] before each draw.
  std::function<void(std::span<float>, const SamplingState&)> logit_callback_fn = {};
};

/// Throws a usage error if topk and topp are both set, max_decode_steps exceeds the length or a
/// size does not fit. Result length: that of the inputs.
Decodes temperature_sample(const Prompts& inputs, TokenModel& model, int32_t eos_id,
                           const SampleOptions& options);

}  // namespace quintet::decoding
