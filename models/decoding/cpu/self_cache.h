#pragma once
// Keys and values of the decoder's self-attention for a batch whose size is known. A token is
// written once, in its row's sequence; when beam search lets a row continue another's sequence, only
// the list of slots is rewritten.
//
//   SelfCache cache;
//   cache.start(spec.decoder, batch, {.num_decodes = 4, .max_length = 128});
//   cache.follow(input);                         // before each step
//   cache.places_of(row, position + 1)           // where each token of the row's past stands

#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "models/decoding/cpu/decoder_step.h"
#include "models/decoding/cpu/packed_network.h"
#include "models/decoding/search/token_model.h"

namespace quintet::decoding {

struct CacheOptions {
  int64_t num_decodes = 1;  // rows an item: beams or samples
  int64_t max_length = 0;   // tokens a row may hold
  CacheType type = CacheType::native;
};

class SelfCache {
 public:
  /// Forgets all tokens. Memory is kept for the next batch if that fits; of a large cache it is taken page by page as
  /// tokens are written, a small one lies on huge pages. Throws a usage error for sizes that are not positive,
  /// kEnvironment when memory is short.
  void start(const StackSpec& decoder, int64_t batch, const CacheOptions& options);

  int64_t max_length() const { return options_.max_length; }
  int64_t decodes() const { return options_.num_decodes; }
  int64_t bytes() const { return 4 * capacity_; }

  const CacheLayout& layout() const { return layout_; }
  /// Where a row writes its token t.
  float* slot(int64_t row, int64_t t) const;
  /// Lets each row of a step continue its source's history, and claims the slot of its new token.
  void follow(const StepInput& input);
  /// Slots of the first `count` tokens of a row.
  std::span<float* const> places_of(int64_t row, int64_t count) const {
    return std::span(slots_).subspan(static_cast<size_t>(row * options_.max_length),
                                     static_cast<size_t>(count));
  }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  CacheOptions options_;
  CacheLayout layout_;
  int64_t item_floats_ = 0, token_floats_ = 0, capacity_ = 0;
  // [layers, items, heads] of keys, then values [max_length, sequences, token_floats].
  std::unique_ptr<float[], Free> data_;
  std::vector<float*> slots_, next_slots_;  // [rows, max_length]
};

}  // namespace quintet::decoding
