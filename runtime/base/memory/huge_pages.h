#pragma once
// Large blocks of memory on huge pages: fewer faults and fewer translation misses.

#include <malloc.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace quintet {

inline constexpr int64_t kHugePage = 2 << 20;

/// Asks the system for huge pages below a block, which is a multiple of them; it may have none left.
inline void advise_huge_pages(void* block, int64_t bytes) {
#ifdef MADV_HUGEPAGE
  madvise(block, static_cast<size_t>(bytes), MADV_HUGEPAGE);
#endif
}

/// Uninitialised bytes for std::free, on huge pages if there are enough of them, else aligned to 64 bytes. nullptr
/// without memory: not posix_memalign, whose failure ends the `quintet` program (apps/allocation.cpp).
inline void* allocate_on_huge_pages(int64_t bytes) {
  const bool is_large = bytes >= kHugePage;
  void* block =
      memalign(static_cast<size_t>(is_large ? kHugePage : 64), static_cast<size_t>(bytes));
  if (is_large && block != nullptr) advise_huge_pages(block, bytes);
  return block;
}

}  // namespace quintet
