#pragma once
// Keys and values of the decoder's self-attention. A token is written once, in its row's slot; when
// beam search lets a row continue another's sequence, only the table of slots is rewritten.
//
//   SelfCache cache;
//   cache.start(shape, batch, {.num_decodes = 4, .max_length = 128});
//   cache.follow(input);                         // before each step
//   cache.slots_of(row, position + 1)            // in whose slot each token of the row's past
//   stands

#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "kernels/decode_attention/decode_attention.h"
#include "models/decoding/packed_network.h"
#include "models/decoding/token_model.h"

namespace quintet::decoding {

struct CacheOptions {
  int64_t num_decodes = 1;  // rows an item: beams or samples
  int64_t max_length = 0;   // tokens a row may hold
};

class SelfCache {
 public:
  /// Forgets all tokens. Memory is taken page by page as tokens are written, and kept for the next
  /// batch if that fits. Throws a usage error for sizes that are not positive, kEnvironment when
  /// memory is short.
  void start(const NetworkShape& shape, int64_t batch, const CacheOptions& options);

  int64_t max_length() const { return options_.max_length; }
  int64_t decodes() const { return options_.num_decodes; }
  int64_t bytes() const { return 4 * capacity_; }

  CachedKeys head(int64_t layer, int64_t item, int64_t head) const;
  /// Lets each row of a step continue its source's history, and claims the place of its new token.
  void follow(const StepInput& input);
  /// Slot of each of the first `count` tokens of a row.
  std::span<const uint16_t> slots_of(int64_t row, int64_t count) const {
    return std::span(slots_).subspan(static_cast<size_t>(row * options_.max_length),
                                     static_cast<size_t>(count));
  }
  int64_t slot(int64_t row) const { return row % options_.num_decodes; }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  CacheOptions options_;
  int64_t batch_ = 0, heads_ = 0, head_floats_ = 0, capacity_ = 0;
  // [layers, items, heads] of keys, then values [max_length, slots, depth].
  std::unique_ptr<float[], Free> data_;
  std::vector<uint16_t> slots_, next_slots_;  // [rows, max_length]
};

}  // namespace quintet::decoding
