#include "models/serving/gpu_pages.h"

#include <algorithm>
#include <limits>

namespace quintet::serving {

GpuPages::GpuPages(const decoding::GpuWeights& weights, int64_t tokens, int64_t bytes,
                   CacheType type)
    : type_(type),
      tokens_(tokens),
      width_(weights.layer().kv_width()),
      head_stride_(weights.layer().kv_head_of(1) * weights.layer().head_dim) {
  const bool in_bytes = type != CacheType::native;
  scale_bytes_ = in_bytes ? 4 * weights.layer().kv_heads() : 0;  // of a slot's keys, and values
  number_bytes_ = width_ * (in_bytes ? 1 : size_of(weights.dtype()));
  const int64_t slot_bytes = number_bytes_ + scale_bytes_;
  const auto layers = std::ssize(weights.decoder.layers);
  bytes_ = tokens * layers * 2 * slot_bytes;
  const int64_t pages =
      std::min<int64_t>(bytes / bytes_, std::numeric_limits<Slot>::max() / tokens);
  QT_CHECK(pages > 0, "serving: {} bytes for caches hold no page of {} tokens, which takes {}",
           bytes, tokens, bytes_);
  slots_ = pages * tokens;
  constexpr int64_t kAlign = 16;
  layer_bytes_ = (2 * slots_ * slot_bytes + kAlign - 1) / kAlign * kAlign;
  memory_ = Device::current().memory().allocate(layers * layer_bytes_);
  free_.reserve(static_cast<size_t>(pages));
  for (int64_t page = pages; page-- > 0;) free_.push_back(static_cast<int32_t>(page));
}

GpuPages::Page GpuPages::take() {
  QT_ASSERT(!free_.empty());
  const int32_t number = free_.back();
  free_.pop_back();
  return {free_, number};
}

DecodeCache GpuPages::pool(size_t layer) const {
  std::byte* const scales = memory_.get() + static_cast<int64_t>(layer) * layer_bytes_;
  std::byte* const keys = scales + 2 * slots_ * scale_bytes_;
  DecodeCache pool{.keys = keys,
                   .values = keys + slots_ * number_bytes_,
                   .sequence_stride = 0,
                   .head_stride = head_stride_,
                   .token_stride = width_,
                   .max_length = slots_,
                   .type = type_};
  if (type_ != CacheType::native) {
    pool.key_scales = reinterpret_cast<float*>(scales);
    pool.value_scales = reinterpret_cast<float*>(scales + slots_ * scale_bytes_);
  }
  return pool;
}

}  // namespace quintet::serving
