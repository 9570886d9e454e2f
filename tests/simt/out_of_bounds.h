#pragma once
// Bytes around an array that kernels must not touch. A write is seen by what was there; a read only
// by AddressSanitizer, in programs that it is in.

#include <cstddef>

extern "C" [[gnu::weak]] void __asan_poison_memory_region(const volatile void* begin, size_t bytes);
extern "C" [[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* begin,
                                                            size_t bytes);

namespace quintet::testing {

/// From here on the sanitizer reports any use of these bytes of host memory, or none.
inline void set_out_of_bounds(const volatile void* begin, size_t bytes, bool on) {
  if (__asan_poison_memory_region != nullptr)
    (on ? __asan_poison_memory_region : __asan_unpoison_memory_region)(begin, bytes);
}

}  // namespace quintet::testing
