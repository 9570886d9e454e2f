#include "models/serving/cpu_pages.h"

#include <cstdlib>
#include <new>

namespace quintet::serving {

CpuPages::CpuPages(const StackSpec& decoder, int64_t tokens, CacheType type)
    : tokens_(tokens), token_floats_(cached_floats(decoder.layer.head_dim, type)) {
  const int64_t values = tokens * token_floats_;
  layout_ = {.layer = 2 * values * decoder.layer.kv_heads(),
             .head = 2 * values,
             .values = values,
             .type = type};
  bytes_ = 4 * layout_.layer * decoder.num_layers;
}

void CpuPages::Free::operator()(float* p) const { std::free(p); }

CpuPages::Page CpuPages::take() const {
  constexpr int64_t kAlign = 128;  // of any vector
  Page page(static_cast<float*>(
      std::aligned_alloc(kAlign, static_cast<size_t>((bytes_ + kAlign - 1) / kAlign * kAlign))));
  if (page == nullptr) throw std::bad_alloc();
  return page;
}

}  // namespace quintet::serving
