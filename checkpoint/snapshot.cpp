#include "checkpoint/snapshot.h"

#include <cstring>

#include "checkpoint/manifest.h"
#include "runtime/base/memory/huge_pages.h"

namespace quintet {
namespace {

constexpr size_t kArrayAlignment = 64;

size_t padded(const TensorSlice& slice) {
  const auto bytes = static_cast<size_t>(checked_bytes(slice.dtype, slice.sizes, slice.name));
  return (bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
}

}  // namespace

void Snapshot::take(const std::vector<TensorSlice>& slices) {
  slices_.clear();
  size_t total = 0;
  for (const TensorSlice& slice : slices) total += padded(slice);
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
    const auto bytes = static_cast<size_t>(checked_bytes(slice.dtype, slice.sizes, slice.name));
    if (bytes > 0) std::memcpy(at, slice.data, bytes);
    slices_.push_back(slice);
    slices_.back().data = at;
    at += padded(slice);
  }
}

}  // namespace quintet
