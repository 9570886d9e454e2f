#include "tests/harness/peak_allocation.h"

#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

// glibc's own, under the names by which a program that replaces malloc reaches them.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* block, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* block);
}

namespace {

std::atomic<int64_t> now{0}, peak{0};

void* counted(void* block) {
  if (block == nullptr) return block;
  const int64_t all = now += static_cast<int64_t>(malloc_usable_size(block));
  int64_t most = peak;
  while (all > most && !peak.compare_exchange_weak(most, all)) {
  }
  return block;
}

}  // namespace

// operator new goes to these, and so do the C libraries.
extern "C" {
void* malloc(size_t size) { return counted(__libc_malloc(size)); }
void* calloc(size_t count, size_t size) { return counted(__libc_calloc(count, size)); }
void* memalign(size_t alignment, size_t size) { return counted(__libc_memalign(alignment, size)); }
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** block, size_t alignment, size_t size) {
  *block = memalign(alignment, size);
  return *block == nullptr ? ENOMEM : 0;
}
void free(void* block) {
  if (block != nullptr) now -= static_cast<int64_t>(malloc_usable_size(block));
  __libc_free(block);
}
void* realloc(void* block, size_t size) {
  const auto before = block == nullptr ? 0 : static_cast<int64_t>(malloc_usable_size(block));
  void* const moved = __libc_realloc(block, size);
  if (moved == nullptr && size > 0) return nullptr;  // the old block is still there
  now -= before;
  return counted(moved);
}
}  // extern "C"

namespace quintet::testing {

PeakAllocation::PeakAllocation() : before_(now) { peak = now.load(); }

int64_t PeakAllocation::bytes() const { return peak - before_; }

}  // namespace quintet::testing
