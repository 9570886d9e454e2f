#pragma once
// How large a cooperative launch may be, and numbers that its blocks hand each other without a barrier.

#include "kernels/simt/launch.cuh"

#ifdef QUINTET_EMULATE
#include "kernels/simt/emulator/barrier.h"
#endif

namespace quintet::QT_GPU::simt {

/// The most blocks of a kernel, launched like `how` but for its grid, that the device holds
/// together.
int64_t resident_blocks(const void* kernel, const Launch& how);

template <typename... P>
int64_t resident_blocks(void (*kernel)(P...), const Launch& how) {
  return resident_blocks(reinterpret_cast<const void*>(kernel), how);
}

/// The same of clusters of `how.cluster` blocks.
int64_t resident_clusters(const void* kernel, const Launch& how);

template <typename... P>
int64_t resident_clusters(void (*kernel)(P...), const Launch& how) {
  return resident_clusters(reinterpret_cast<const void*>(kernel), how);
}

#ifdef QUINTET_EMULATE
QT_DEVICE void store_marked(uint64_t* to, float value, uint32_t mark) {
  emulator::store_shared_word(to, uint64_t{mark} << 32 | __float_as_uint(value));
}
template <int kCount>
QT_DEVICE void await_marked(const uint64_t* const (&from)[kCount], uint32_t mark,
                            float (&values)[kCount]) {
  for (int i = 0; i < kCount; ++i) {
    if (from[i] != nullptr) emulator::await_word(from[i], mark);
    values[i] = from[i] == nullptr ? 0.0f : __uint_as_float(static_cast<uint32_t>(*from[i]));
  }
}
#else
/// A number for threads of other blocks that are resident too, in one word with a mark, so that whoever
/// finds the mark has the number: no fence, no barrier, one way through the L2 cache.
QT_DEVICE void store_marked(uint64_t* to, float value, uint32_t mark) {
  const uint64_t word = uint64_t{mark} << 32 | __float_as_uint(value);
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
/// Waits until each word has the mark, of which the word has had another before. Null: 0 at once.
template <int kCount>
QT_DEVICE void await_marked(const uint64_t* const (&from)[kCount], uint32_t mark,
                            float (&values)[kCount]) {
  const auto load = [](const uint64_t* word) {
    uint64_t v;
    asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(v) : "l"(word) : "memory");
    return v;
  };
  uint64_t words[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    words[i] = from[i] == nullptr ? uint64_t{mark} << 32 : load(from[i]);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    while (static_cast<uint32_t>(words[i] >> 32) != mark) words[i] = load(from[i]);
    values[i] = __uint_as_float(static_cast<uint32_t>(words[i]));
  }
}
#endif

}  // namespace quintet::QT_GPU::simt
