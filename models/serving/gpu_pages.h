#pragma once
// Pages of one pool in the memory of the current device, which is allocated whole. A slot is the
// number of a token's slot; in every layer a slot has the token's key and value of all heads.

#include <cstddef>
#include <utility>
#include <vector>

#include "kernels/decode_attention/decode_rows.h"
#include "models/decoding/gpu/gpu_weights.h"

namespace quintet::serving {

class GpuPages {
 public:
  using Slot = int32_t;
  /// Goes back when it ends. The pages must outlive it.
  class Page {
   public:
    Page(std::vector<int32_t>& free, int32_t number) : free_(&free), number_(number) {}
    Page(Page&& other) noexcept
        : free_(std::exchange(other.free_, nullptr)), number_(other.number_) {}
    Page& operator=(Page&& other) noexcept {
      std::swap(free_, other.free_);
      std::swap(number_, other.number_);
      return *this;
    }
    ~Page() {
      if (free_ != nullptr) free_->push_back(number_);  // which has room for all
    }
    int32_t number() const { return number_; }

   private:
    std::vector<int32_t>* free_;
    int32_t number_;
  };

  /// As many pages of `tokens` tokens as fit into `bytes`. Throws a usage error when that is none,
  /// and Error(kEnvironment) naming bytes wanted and in use when the device has not so much memory.
  GpuPages(const decoding::GpuWeights& weights, int64_t tokens, int64_t bytes, CacheType type);

  int64_t tokens() const { return tokens_; }
  int64_t bytes() const { return bytes_; }
  /// Throws Bug when there is none left: they are reserved before they are taken.
  Page take();
  Slot slot(const Page& page, int64_t token) const {
    return static_cast<Slot>(page.number() * tokens_ + token % tokens_);
  }
  bool holds(const Page& page, Slot slot) const { return slot / tokens_ == page.number(); }
  /// A layer's keys and values, as kernels take them.
  DecodeCache pool(size_t layer) const;

 private:
  const CacheType type_;
  int64_t tokens_, width_, head_stride_, scale_bytes_, number_bytes_, layer_bytes_ = 0, bytes_ = 0,
                                                                      slots_ = 0;
  Buffer
      memory_;  // [layers, keys and values, slots, kv_width]; in bytes before them [2, slots, kv heads] scales
  std::vector<int32_t> free_;
};

}  // namespace quintet::serving
