#include "models/decoding/self_cache.h"

#include <algorithm>
#include <limits>

namespace quintet::decoding {

void SelfCache::start(const NetworkShape& shape, int64_t batch, const CacheOptions& options) {
  QT_CHECK(batch > 0 && options.num_decodes > 0 && options.max_length > 0,
           "generation: batch {}, decodes {} and maximum length {} must be positive", batch,
           options.num_decodes, options.max_length);
  QT_CHECK(options.num_decodes <= std::numeric_limits<uint16_t>::max(),
           "generation: {} decodes an item; at most {} are supported", options.num_decodes,
           std::numeric_limits<uint16_t>::max());
  options_ = options;
  batch_ = batch;
  heads_ = shape.num_heads;
  constexpr int64_t kAlign = 128;  // bytes
  const int64_t floats =
      options.max_length * options.num_decodes * padded_to_vectors(shape.head_dim);
  head_floats_ = (floats * 4 + kAlign - 1) / kAlign * kAlign / 4;
  const int64_t wanted = 2 * head_floats_ * shape.num_decoder_layers * batch * heads_;
  if (wanted > capacity_) {
    data_.reset();
    data_.reset(static_cast<float*>(std::aligned_alloc(kAlign, static_cast<size_t>(4 * wanted))));
    capacity_ = data_ == nullptr ? 0 : wanted;
    QT_CHECK_AS(ExitCode::kEnvironment, data_ != nullptr,
                "generation: cannot get {} MB for the cache of {} rows of {} tokens; use a smaller "
                "batch, fewer decodes or a shorter length",
                wanted >> 18, batch * options.num_decodes, options.max_length);
  }
  slots_.assign(static_cast<size_t>(batch * options.num_decodes * options.max_length), 0);
  next_slots_ = slots_;
}

CachedKeys SelfCache::head(int64_t layer, int64_t item, int64_t head) const {
  float* base = data_.get() + ((layer * batch_ + item) * heads_ + head) * 2 * head_floats_;
  return {.keys = base, .values = base + head_floats_, .slots = options_.num_decodes};
}

void SelfCache::follow(const StepInput& input) {
  const int64_t length = options_.max_length;
  const auto history = [length](std::vector<uint16_t>& table, int64_t row) {
    return table.begin() + row * length;
  };
  for (size_t i = 0; i < input.rows.size(); ++i) {
    const int64_t row = input.rows[i];
    const int64_t source = input.sources.empty() ? row : input.sources[i];
    const int64_t past = std::min<int64_t>(input.positions[i], length);
    std::copy_n(history(slots_, source), past, history(next_slots_, row));
    if (past < length) *(history(next_slots_, row) + past) = static_cast<uint16_t>(slot(row));
  }
  for (size_t i = 0; i < input.rows.size(); ++i) {
    const int64_t row = input.rows[i];
    const int64_t written = std::min<int64_t>(input.positions[i] + 1, length);
    std::copy_n(history(next_slots_, row), written, history(slots_, row));
  }
}

}  // namespace quintet::decoding
