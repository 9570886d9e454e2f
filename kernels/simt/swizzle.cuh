#pragma once
// The permutation of 16-byte pieces within a tile of shared memory that tensor copies and wgmma
// share. PTX ISA, "Tensor Swizzling Modes" and "Matrix descriptor"; piece = bits 4-6 of the
// address:
//
//   128 bytes   piece ^= bits 7-9     8 rows of 128 bytes; tiles at multiples of 1024
//   64 bytes    piece ^= bits 7-8     4 rows of 64 bytes twice; multiples of 512
//   32 bytes    piece ^= bit 7        multiples of 256
//
// A tile [rows, width] of 2-byte elements with width * 2 == the span of the swizzle has its element
// (r, c) at swizzled(r * span + c * 2, swizzle).

#include "kernels/simt/language.cuh"

namespace quintet::QT_GPU::simt {

/// Values are those of the layout type of a wgmma descriptor.
enum class Swizzle : uint32_t { kNone = 0, k128 = 1, k64 = 2, k32 = 3 };

/// Bytes of a row that is permuted as a whole; 16 without swizzle.
__host__ __device__ constexpr uint32_t span_of(Swizzle s) {
  return s == Swizzle::k128 ? 128 : s == Swizzle::k64 ? 64 : s == Swizzle::k32 ? 32 : 16;
}

/// The byte offset at which the byte at `offset` of a tile lies.
__host__ __device__ constexpr uint32_t swizzled(uint32_t offset, Swizzle s) {
  switch (s) {
    case Swizzle::k128:
      return offset ^ ((offset >> 3) & 0x70u);
    case Swizzle::k64:
      return offset ^ ((offset >> 3) & 0x30u);
    case Swizzle::k32:
      return offset ^ ((offset >> 3) & 0x10u);
    default:
      return offset;
  }
}

}  // namespace quintet::QT_GPU::simt
