#pragma once
// Warp-wide matrix instructions: ldmatrix, stmatrix, mma.sync.
// PTX ISA, "Warp-level matrix instructions": ldmatrix, stmatrix, mma; the layouts are those of
// "Matrix Fragments for mma.m16n8k16 / m16n8k8 / m16n8k32". With g = lane / 4 and t = lane % 4:
//
//   m16n8k16, 16-bit   a[0] (g, 2t..2t+1)  a[1] (g+8, 2t..)  a[2] (g, 2t+8..)  a[3] (g+8, 2t+8..)
//                      b[0] (k 2t..2t+1, n g)  b[1] (k 2t+8.., n g)
//   m16n8k8, tf32      a[0] (g, t)  a[1] (g+8, t)  a[2] (g, t+4)  a[3] (g+8, t+4)
//                      b[0] (t, g)  b[1] (t+4, g)
//   m16n8k32, int8     a[0] (g, 4t..4t+3)  a[1] (g+8, 4t..)  a[2] (g, 4t+16..)  a[3] (g+8, 4t+16..)
//                      b[0] (k 4t..4t+3, n g)  b[1] (k 4t+16.., n g)
//   d of all of them   d[0], d[1] (g, 2t), (g, 2t+1)   d[2], d[3] (g+8, 2t), (g+8, 2t+1)

#include "kernels/simt/shared.cuh"
#include "kernels/simt/types.cuh"

#ifdef QUINTET_EMULATE
#include "kernels/simt/emulator/matrix.h"
#endif

namespace quintet::QT_GPU::simt {

#ifdef QUINTET_EMULATE
QT_DEVICE void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
  emulator::ldmatrix(r, 4, row, false);
}
QT_DEVICE void ldmatrix_x2(uint32_t (&r)[2], const void* row) {
  emulator::ldmatrix(r, 2, row, false);
}
QT_DEVICE void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
  emulator::ldmatrix(r, 4, row, true);
}
QT_DEVICE void ldmatrix_x2_trans(uint32_t (&r)[2], const void* row) {
  emulator::ldmatrix(r, 2, row, true);
}
QT_DEVICE void stmatrix_x4(void* row, const uint32_t (&r)[4]) {
  emulator::stmatrix(r, 4, row, false);
}
QT_DEVICE void stmatrix_x2(void* row, const uint32_t (&r)[2]) {
  emulator::stmatrix(r, 2, row, false);
}
QT_DEVICE void stmatrix_x4_trans(void* row, const uint32_t (&r)[4]) {
  emulator::stmatrix(r, 4, row, true);
}
QT_DEVICE void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                            const float (&c)[4], bf16) {
  emulator::mma(d, a, b, c, emulator::Element::kBf16);
}
QT_DEVICE void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                            const float (&c)[4], half) {
  emulator::mma(d, a, b, c, emulator::Element::kHalf);
}
QT_DEVICE void mma_m16n8k8_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                const float (&c)[4]) {
  emulator::mma(d, a, b, c, emulator::Element::kTf32);
}
QT_DEVICE void mma_m16n8k32_s8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                               const int32_t (&c)[4]) {
  emulator::mma_s8(d, a, b, c);
}
#else
/// Four 8x8 matrices of 16-bit values: lane 8i+j gives the address of row j (16 bytes) of matrix i;
/// r[i] holds the lane's values of matrix i, (g, 2t) and (g, 2t+1).
QT_DEVICE void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
/// Two matrices; the addresses of lanes 16-31 are not used (but must be valid).
QT_DEVICE void ldmatrix_x2(uint32_t (&r)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(row))
               : "memory");
}
/// The same, of the transposed matrices: (2t, g) and (2t+1, g) of what is in memory.
QT_DEVICE void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
QT_DEVICE void ldmatrix_x2_trans(uint32_t (&r)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(row))
               : "memory");
}
/// The inverse of ldmatrix (sm_90).
QT_DEVICE void stmatrix_x4([[maybe_unused]] void* row, [[maybe_unused]] const uint32_t (&r)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
      "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
      : "memory");
#endif
}
QT_DEVICE void stmatrix_x2([[maybe_unused]] void* row, [[maybe_unused]] const uint32_t (&r)[2]) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(shared_address(row)),
      "r"(r[0]), "r"(r[1])
      : "memory");
#endif
}
QT_DEVICE void stmatrix_x4_trans([[maybe_unused]] void* row,
                                 [[maybe_unused]] const uint32_t (&r)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   shared_address(row)),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
#endif
}
/// d = a b + c in float32, a 16x16, b 16x8. d may be c.
QT_DEVICE void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                            const float (&c)[4], bf16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]));
}
QT_DEVICE void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                            const float (&c)[4], half) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]));
}
/// a 16x8, b 8x8, of to_tf32() values; lower bits are ignored.
QT_DEVICE void mma_m16n8k8_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                const float (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]));
}
/// a 16x32, b 32x8 of int8; exact in int32 (wraps).
QT_DEVICE void mma_m16n8k32_s8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                               const int32_t (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %11, %12, %13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]),
        "r"(c[2]), "r"(c[3]));
}
#endif

}  // namespace quintet::QT_GPU::simt
