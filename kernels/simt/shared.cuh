#pragma once
// Dynamic shared memory, the only kind used.
//
//   auto q = simt::shared<bf16>(0, kRows * kDepth);         // T* on the device; in the emulator
//   auto k = simt::shared<bf16>(kRows * kDepth * 2, n);     // checked at every access
//
// The memory starts at a multiple of 1024 bytes, so swizzled tiles may be placed at such offsets.

#include "kernels/simt/language.cuh"

#ifdef QUINTET_EMULATE
#include "kernels/simt/emulator/shared.h"
#else
namespace quintet::cuda::simt {

template <typename T>
using Shared = T*;

extern __shared__ __align__(1024) unsigned char dynamic_shared_memory[];

/// `count` elements of T at `byte_offset` of the block's dynamic shared memory.
template <typename T>
QT_DEVICE T* shared(size_t byte_offset, [[maybe_unused]] size_t count) {
  return reinterpret_cast<T*>(dynamic_shared_memory + byte_offset);
}
/// The same memory as elements of U (wider or narrower).
template <typename U, typename T>
QT_DEVICE U* shared_cast(T* p) {
  return reinterpret_cast<U*>(p);
}
/// The 32-bit address in the shared window, as PTX and matrix descriptors want it.
QT_DEVICE uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

}  // namespace quintet::cuda::simt
#endif
