#pragma once
// The warp-wide matrix instructions as the emulator does them; see kernels/simt/matrix.cuh.

#include <cstdint>

namespace quintet::emulated::simt::emulator {

enum class Element { kBf16, kHalf, kTf32 };

void ldmatrix(uint32_t* r, int count, const void* row, bool transposed);
void stmatrix(const uint32_t* r, int count, void* row, bool transposed);
void mma(float* d, const uint32_t* a, const uint32_t* b, const float* c, Element element);
void mma_s8(int32_t* d, const uint32_t* a, const uint32_t* b, const int32_t* c);

/// d[rows x columns] += a[rows x depth] b[depth x columns], row-major, columns a multiple of 8.
/// Each element is a chain of float32 multiply-adds in order of depth.
void multiply_add(float* d, const float* a, const float* b, int rows, int columns, int depth);
/// `count` values of 16 bits widened.
void widen(float* out, const void* in, int count, Element element);

}  // namespace quintet::emulated::simt::emulator
