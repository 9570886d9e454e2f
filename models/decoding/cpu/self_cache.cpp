#include "models/decoding/cpu/self_cache.h"

#include <algorithm>

#include "runtime/base/memory/huge_pages.h"

namespace quintet::decoding {

void SelfCache::start(const StackSpec& decoder, int64_t batch, const CacheOptions& options) {
  QT_CHECK(batch > 0 && options.num_decodes > 0 && options.max_length > 0,
           "generation: batch {}, decodes {} and maximum length {} must be positive", batch,
           options.num_decodes, options.max_length);
  options_ = options;
  constexpr int64_t kAlign = 128;  // bytes
  token_floats_ = cached_floats(decoder.layer.head_dim, options.type);
  const int64_t floats = options.max_length * options.num_decodes * token_floats_;
  const int64_t head_floats = (floats * 4 + kAlign - 1) / kAlign * kAlign / 4;
  item_floats_ = 2 * head_floats * decoder.layer.kv_heads();
  layout_ = {.layer = batch * item_floats_,
             .head = 2 * head_floats,
             .values = head_floats,
             .type = options.type};
  const int64_t wanted = layout_.layer * decoder.num_layers;
  if (wanted > capacity_) {
    data_.reset();
    const int64_t bytes = 4 * wanted;
    // A step writes to every head's part: of huge pages all is there from the first token on.
    constexpr int64_t kMostOnHugePages = 64 << 20;
    data_.reset(static_cast<float*>(bytes <= kMostOnHugePages
                                        ? allocate_on_huge_pages(bytes)
                                        : std::aligned_alloc(kAlign, static_cast<size_t>(bytes))));
    capacity_ = data_ == nullptr ? 0 : wanted;
    QT_CHECK_AS(ExitCode::kEnvironment, data_ != nullptr,
                "generation: cannot get {} MB for the cache of {} rows of {} tokens; use a smaller "
                "batch, fewer decodes or a shorter length",
                wanted >> 18, batch * options.num_decodes, options.max_length);
  }
  slots_.clear();
  for (int64_t row = 0; row < batch * options.num_decodes;
       ++row)  // a prefix is in the first sequence
    for (int64_t t = 0; t < options.max_length; ++t)
      slots_.push_back(slot(row - row % options.num_decodes, t));
  next_slots_ = slots_;
}

float* SelfCache::slot(int64_t row, int64_t t) const {
  const int64_t decodes = options_.num_decodes;
  return data_.get() + row / decodes * item_floats_ + (t * decodes + row % decodes) * token_floats_;
}

void SelfCache::follow(const StepInput& input) {
  const int64_t length = options_.max_length;
  const auto history = [length](std::vector<float*>& table, int64_t row) {
    return table.begin() + row * length;
  };
  for (size_t i = 0; i < input.rows.size(); ++i) {
    const int64_t row = input.rows[i];
    const int64_t source = input.sources.empty() ? row : input.sources[i];
    const int64_t past = std::min<int64_t>(input.positions[i], length);
    std::copy_n(history(slots_, source), past, history(next_slots_, row));
    if (past < length) *(history(next_slots_, row) + past) = slot(row, past);
  }
  for (size_t i = 0; i < input.rows.size(); ++i) {
    const int64_t row = input.rows[i];
    const int64_t written = std::min<int64_t>(input.positions[i] + 1, length);
    std::copy_n(history(next_slots_, row), written, history(slots_, row));
  }
}

}  // namespace quintet::decoding
