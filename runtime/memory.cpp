#include "runtime/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "runtime/base/check.h"

namespace quintet {
namespace {

constexpr int64_t kAlign = 64, kHuge = 2 << 20;

/// Rounded so that blocks of nearly equal tensors are interchangeable: 1/8 of the size is lost at
/// most.
int64_t capacity_for(int64_t bytes) {
  int64_t unit = kAlign;
  while (unit * 16 < bytes) unit *= 2;
  return std::max<int64_t>((bytes + unit - 1) / unit * unit, kAlign);
}

}  // namespace

Memory& Memory::host() {
  static auto* memory = new Memory;  // never destroyed: tensors may outlive static destructors
  return *memory;
}

Memory::~Memory() { release_cached(); }

Buffer Memory::allocate(int64_t bytes) {
  QT_ASSERT(bytes >= 0);
  const int64_t capacity = capacity_for(bytes);
  Block block = take_cached(capacity);
  if (block.pointer == nullptr) {
    const auto alignment = static_cast<size_t>(capacity >= kHuge ? kHuge : kAlign);
    block = {
        static_cast<std::byte*>(std::aligned_alloc(
            alignment, (static_cast<size_t>(capacity) + alignment - 1) / alignment * alignment)),
        capacity};
    QT_CHECK_AS(ExitCode::kEnvironment, block.pointer != nullptr,
                "out of memory: {} bytes wanted, {} in use; use a smaller batch, more microbatches "
                "or remat",
                bytes, used_bytes());
#ifdef MADV_HUGEPAGE
    if (capacity >= kHuge) madvise(block.pointer, static_cast<size_t>(capacity), MADV_HUGEPAGE);
#endif
  }
  {
    std::lock_guard lock(mutex_);
    used_ += block.capacity;
    peak_ = std::max(peak_, used_);
  }
  return Buffer(block.pointer, [this, block](std::byte*) { give_back(block); });
}

Memory::Block Memory::take_cached(int64_t capacity) {
  std::lock_guard lock(mutex_);
  const auto found = cached_.lower_bound(capacity);
  if (found == cached_.end() || found->first > capacity + capacity / 8) return {nullptr, 0};
  const Block block{found->second, found->first};
  cached_.erase(found);
  return block;
}

void Memory::give_back(Block block) {
  std::lock_guard lock(mutex_);
  used_ -= block.capacity;
  cached_.emplace(block.capacity, block.pointer);
}

void Memory::release_cached() {
  std::lock_guard lock(mutex_);
  for (const auto& [capacity, pointer] : cached_) std::free(pointer);
  cached_.clear();
}

int64_t Memory::used_bytes() const {
  std::lock_guard lock(mutex_);
  return used_;
}

int64_t Memory::peak_bytes() const {
  std::lock_guard lock(mutex_);
  return peak_;
}

void Memory::reset_peak() {
  std::lock_guard lock(mutex_);
  peak_ = used_;
}

}  // namespace quintet
