#include "tests/harness/peak_allocation.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> now{0}, peak{0};

void* counted(void* block) {
  if (block == nullptr) throw std::bad_alloc();
  const int64_t all = now += static_cast<int64_t>(malloc_usable_size(block));
  int64_t most = peak;
  while (all > most && !peak.compare_exchange_weak(most, all)) {
  }
  return block;
}

void released(void* block) {
  if (block != nullptr) now -= static_cast<int64_t>(malloc_usable_size(block));
  std::free(block);
}

}  // namespace

// The forms for arrays and for sizes go to these.
void* operator new(size_t size) { return counted(std::malloc(size == 0 ? 1 : size)); }
void* operator new(size_t size, std::align_val_t alignment) {
  const auto step = static_cast<size_t>(alignment);
  return counted(std::aligned_alloc(step, (size + step - 1) / step * step));
}
void operator delete(void* block) noexcept { released(block); }
void operator delete(void* block, size_t) noexcept { released(block); }
void operator delete(void* block, std::align_val_t) noexcept { released(block); }
void operator delete(void* block, size_t, std::align_val_t) noexcept { released(block); }

namespace quintet::testing {

PeakAllocation::PeakAllocation() : before_(now) { peak = now.load(); }

int64_t PeakAllocation::bytes() const { return peak - before_; }

}  // namespace quintet::testing
