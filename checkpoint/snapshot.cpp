#include "checkpoint/snapshot.h"

#include <cstring>

#include "checkpoint/manifest.h"
#include "runtime/base/memory/huge_pages.h"

namespace quintet {

int64_t bytes_of(const TensorSlice& slice) {
  return checked_bytes(slice.dtype, slice.sizes, slice.name);
}

int64_t padded_bytes_of(const TensorSlice& slice) {
  constexpr int64_t kArrayAlignment = 64;
  return (bytes_of(slice) + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
}

void Snapshot::take(const std::vector<TensorSlice>& slices) {
  slices_.clear();
  size_t total = 0;
  for (const TensorSlice& slice : slices) total += static_cast<size_t>(padded_bytes_of(slice));
  if (total > capacity_) {
    memory_.reset();  // the old one first: never two copies
    capacity_ = 0;
    size_t space = total + kHugePage;
    memory_ = std::make_unique_for_overwrite<std::byte[]>(space);
    void* first = memory_.get();
    first_ = static_cast<std::byte*>(std::align(kHugePage, total, first, space));
    advise_huge_pages(first_, static_cast<int64_t>(total));
    capacity_ = total;
  }
  std::byte* at = first_;
  for (const TensorSlice& slice : slices) {
    const auto bytes = static_cast<size_t>(bytes_of(slice));
    if (bytes > 0) std::memcpy(at, slice.data, bytes);
    slices_.push_back(slice);
    slices_.back().data = at;
    at += padded_bytes_of(slice);
  }
}

}  // namespace quintet
