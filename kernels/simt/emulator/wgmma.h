#pragma once
// Warpgroup products as the emulator does them; see kernels/simt/wgmma.cuh.
//
// Each warp's quarter is executed on its own, at a moment between its issue and its wait. Meanwhile
// its accumulators are NaN. Operands that the kernel wrote without a proxy fence, or overwrites
// before the wait, are read as NaN.

#include <cstdint>

namespace quintet::emulated::simt::emulator {

void wgmma_fence();
void wgmma_commit();
void wgmma_wait(int groups);
/// a: 4 registers, or null for the operand that desc_a describes.
void wgmma(float* d, int n, const uint32_t* a, uint64_t desc_a, uint64_t desc_b, bool accumulate,
           bool trans_a, bool trans_b, bool is_bf16);

}  // namespace quintet::emulated::simt::emulator
