#pragma once
// Pages of ordinary memory, allocated one by one. A slot is the token's address.

#include <memory>

#include "models/decoding/cpu/decoder_step.h"

namespace quintet::serving {

class CpuPages {
 public:
  CpuPages(const StackSpec& decoder, int64_t tokens, CacheType type);

  struct Free {
    void operator()(float* p) const;
  };
  using Page = std::unique_ptr<float, Free>;
  using Slot = float*;

  int64_t tokens() const { return tokens_; }
  int64_t bytes() const { return bytes_; }
  const decoding::CacheLayout& layout() const { return layout_; }
  /// Throws bad_alloc when memory is short.
  Page take() const;
  Slot slot(const Page& page, int64_t token) const {
    return page.get() + token % tokens_ * token_floats_;
  }
  bool holds(const Page& page, Slot slot) const {
    return slot >= page.get() && slot < page.get() + bytes_ / 4;
  }

 private:
  int64_t tokens_, token_floats_, bytes_;
  decoding::CacheLayout layout_;
};

}  // namespace quintet::serving
