#pragma once
// Matrix products of a warpgroup: four consecutive warps, the first of a number divisible by 4
// (sm_90a). PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": wgmma.mma_async,
// wgmma.fence, wgmma.commit_group, wgmma.wait_group; "Shared Memory Matrix Layout", "Matrix
// descriptor".
//
//   D [64, N] (+)= A [64, 16] B [16, N]: bf16 or half, sums in float32
//
// D: warp w of the group has rows 16w to 16w + 15; with g = lane / 4, t = lane % 4, register 4j + i
// of a lane is row g + 8 * (i / 2), column 8j + 2t + i % 2. A in registers: the A of mma_m16n8k16,
// per warp.
//
//   wgmma_fence();                                      // registers written before are used below
//   for (k ...) wgmma<N>(d, desc_a + k * 2, desc_b + k * 2, k > 0);   // 16 columns = 32 bytes = 2
//   wgmma_commit();
//   wgmma_wait<0>();                                    // d may be read; operands may be overwritten
//   wgmma_fence_registers(d);                           // keeps nvcc from reading d earlier
//
// Operands written by ordinary stores need fence_async_shared() and a barrier before.

#include "kernels/simt/barrier.cuh"
#include "kernels/simt/shared.cuh"
#include "kernels/simt/swizzle.cuh"
#include "kernels/simt/types.cuh"

#ifdef QUINTET_EMULATE
#include "kernels/simt/emulator/wgmma.h"
#else
#include "kernels/simt/wgmma_registers.h"
#endif

namespace quintet::QT_GPU::simt {

/// Describes an operand in shared memory; leading and stride in bytes. A step is 16 bytes of a row:
/// 8 elements. "Tile of 8" below is 8 rows of span_of(swizzle) bytes.
///   K-major (rows of M or N, K contiguous; not transposed):
///     swizzle: stride = from one tile of 8 rows to the next (8 * span when dense); leading unused
///     none:    tiles of 8 rows x 16 bytes; leading = to the next 8 elements of K, stride = next 8 rows
///   MN-major (rows of K, M or N contiguous; transposed):
///     swizzle: leading = from one span of M or N to the next; stride = from 8 rows of K to the next 8
///     none:    tiles of 8 rows (K) x 16 bytes; stride = next 8 of M or N, leading = next 8 rows of K
/// The tile starts at a multiple of 8 * span; an address within its first rows may be advanced
/// along the row (K-major: by 32 bytes for each 16 elements of K).
QT_DEVICE uint64_t smem_descriptor(const void* tile, uint32_t leading, uint32_t stride,
                                   Swizzle swizzle) {
  const auto field = [](uint32_t bytes) { return static_cast<uint64_t>((bytes & 0x3ffffu) >> 4); };
  return field(shared_address(tile)) | field(leading) << 16 | field(stride) << 32 |
         static_cast<uint64_t>(swizzle) << 62;
}

#ifdef QUINTET_EMULATE

QT_DEVICE void wgmma_fence() { emulator::wgmma_fence(); }
QT_DEVICE void wgmma_commit() { emulator::wgmma_commit(); }
template <int N>
QT_DEVICE void wgmma_wait() {
  emulator::wgmma_wait(N);
}
template <typename T, size_t R>
QT_DEVICE void wgmma_fence_registers(T (&)[R]) {}
template <int N, bool kTransA = false, bool kTransB = false, typename T = bf16>
QT_DEVICE void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, bool accumulate) {
  static_assert(N % 8 == 0 && N >= 8 && N <= 256);
  emulator::wgmma(d, N, nullptr, a, b, accumulate, kTransA, kTransB, std::is_same_v<T, bf16>);
}
template <int N, bool kTransB = false, typename T = bf16>
QT_DEVICE void wgmma(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
  static_assert(N % 8 == 0 && N >= 8 && N <= 256);
  emulator::wgmma(d, N, a, 0, b, accumulate, false, kTransB, std::is_same_v<T, bf16>);
}

#else

/// Before the first product, and whenever registers of accumulators or A have been written since.
QT_DEVICE void wgmma_fence() {
#if QT_SM90A
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
QT_DEVICE void wgmma_commit() {
#if QT_SM90A
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
/// Until at most N of the warp's groups are under way.
template <int N>
QT_DEVICE void wgmma_wait() {
#if QT_SM90A
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
#endif
}
/// nvcc takes the accumulators for ready right after the wgmma that writes them: this keeps their
/// uses behind the wait (and their earlier writes before the fence).
template <size_t R>
QT_DEVICE void wgmma_fence_registers(float (&d)[R]) {
#pragma unroll
  for (size_t i = 0; i < R; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
/// The same of packed operands.
template <size_t R>
QT_DEVICE void wgmma_fence_registers(uint32_t (&a)[R]) {
#pragma unroll
  for (size_t i = 0; i < R; ++i) asm volatile("" : "+r"(a[i])::"memory");
}

#define QT_WGMMA_TYPE(T_, N_, REGS, A, B, P, TA, TB)                                    \
  "{\n.reg .pred p;\nsetp.ne.b32 p, " P                                                 \
  ", 0;\n"                                                                              \
  "wgmma.mma_async.sync.aligned.m64n" #N_ "k16.f32." T_ "." T_ " {" REGS "}, " A ", " B \
  ", p, 1, 1" TA TB ";\n}"
#define QT_WGMMA_SS(N_, R_, A, B, P, TA, TB, UNUSED)                                     \
  if constexpr (std::is_same_v<T, bf16>)                                                 \
    asm volatile(QT_WGMMA_TYPE("bf16", N_, QT_TEXT_##R_, A, B, P, ", " TA, ", " TB)      \
                 : QT_BOTH_##R_                                                          \
                 : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(int{kTransA}), \
                   "n"(int{kTransB})                                                     \
                 : "memory");                                                            \
  else                                                                                   \
    asm volatile(QT_WGMMA_TYPE("f16", N_, QT_TEXT_##R_, A, B, P, ", " TA, ", " TB)       \
                 : QT_BOTH_##R_                                                          \
                 : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(int{kTransA}), \
                   "n"(int{kTransB})                                                     \
                 : "memory");
#define QT_WGMMA_RS(N_, R_, A0, A1, A2, A3, B, P, TB, UNUSED)                                      \
  if constexpr (std::is_same_v<T, bf16>)                                                           \
    asm volatile(QT_WGMMA_TYPE("bf16", N_, QT_TEXT_##R_, "{" A0 ", " A1 ", " A2 ", " A3 "}", B, P, \
                               ", " TB, "")                                                        \
                 : QT_BOTH_##R_                                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                             \
                   "r"(static_cast<int>(accumulate)), "n"(int{kTransB})                            \
                 : "memory");                                                                      \
  else                                                                                             \
    asm volatile(QT_WGMMA_TYPE("f16", N_, QT_TEXT_##R_, "{" A0 ", " A1 ", " A2 ", " A3 "}", B, P,  \
                               ", " TB, "")                                                        \
                 : QT_BOTH_##R_                                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                             \
                   "r"(static_cast<int>(accumulate)), "n"(int{kTransB})                            \
                 : "memory");
// clang-format off
#define QT_WGMMA_SS_ALL \
  if constexpr (N == 8) { QT_WGMMA_SS(8, 4, "%4", "%5", "%6", "%7", "%8", "%9") } \
  else if constexpr (N == 16) { QT_WGMMA_SS(16, 8, "%8", "%9", "%10", "%11", "%12", "%13") } \
  else if constexpr (N == 24) { QT_WGMMA_SS(24, 12, "%12", "%13", "%14", "%15", "%16", "%17") } \
  else if constexpr (N == 32) { QT_WGMMA_SS(32, 16, "%16", "%17", "%18", "%19", "%20", "%21") } \
  else if constexpr (N == 40) { QT_WGMMA_SS(40, 20, "%20", "%21", "%22", "%23", "%24", "%25") } \
  else if constexpr (N == 48) { QT_WGMMA_SS(48, 24, "%24", "%25", "%26", "%27", "%28", "%29") } \
  else if constexpr (N == 56) { QT_WGMMA_SS(56, 28, "%28", "%29", "%30", "%31", "%32", "%33") } \
  else if constexpr (N == 64) { QT_WGMMA_SS(64, 32, "%32", "%33", "%34", "%35", "%36", "%37") } \
  else if constexpr (N == 72) { QT_WGMMA_SS(72, 36, "%36", "%37", "%38", "%39", "%40", "%41") } \
  else if constexpr (N == 80) { QT_WGMMA_SS(80, 40, "%40", "%41", "%42", "%43", "%44", "%45") } \
  else if constexpr (N == 88) { QT_WGMMA_SS(88, 44, "%44", "%45", "%46", "%47", "%48", "%49") } \
  else if constexpr (N == 96) { QT_WGMMA_SS(96, 48, "%48", "%49", "%50", "%51", "%52", "%53") } \
  else if constexpr (N == 104) { QT_WGMMA_SS(104, 52, "%52", "%53", "%54", "%55", "%56", "%57") } \
  else if constexpr (N == 112) { QT_WGMMA_SS(112, 56, "%56", "%57", "%58", "%59", "%60", "%61") } \
  else if constexpr (N == 120) { QT_WGMMA_SS(120, 60, "%60", "%61", "%62", "%63", "%64", "%65") } \
  else if constexpr (N == 128) { QT_WGMMA_SS(128, 64, "%64", "%65", "%66", "%67", "%68", "%69") } \
  else if constexpr (N == 136) { QT_WGMMA_SS(136, 68, "%68", "%69", "%70", "%71", "%72", "%73") } \
  else if constexpr (N == 144) { QT_WGMMA_SS(144, 72, "%72", "%73", "%74", "%75", "%76", "%77") } \
  else if constexpr (N == 152) { QT_WGMMA_SS(152, 76, "%76", "%77", "%78", "%79", "%80", "%81") } \
  else if constexpr (N == 160) { QT_WGMMA_SS(160, 80, "%80", "%81", "%82", "%83", "%84", "%85") } \
  else if constexpr (N == 168) { QT_WGMMA_SS(168, 84, "%84", "%85", "%86", "%87", "%88", "%89") } \
  else if constexpr (N == 176) { QT_WGMMA_SS(176, 88, "%88", "%89", "%90", "%91", "%92", "%93") } \
  else if constexpr (N == 184) { QT_WGMMA_SS(184, 92, "%92", "%93", "%94", "%95", "%96", "%97") } \
  else if constexpr (N == 192) { QT_WGMMA_SS(192, 96, "%96", "%97", "%98", "%99", "%100", "%101") } \
  else if constexpr (N == 200) { QT_WGMMA_SS(200, 100, "%100", "%101", "%102", "%103", "%104", "%105") } \
  else if constexpr (N == 208) { QT_WGMMA_SS(208, 104, "%104", "%105", "%106", "%107", "%108", "%109") } \
  else if constexpr (N == 216) { QT_WGMMA_SS(216, 108, "%108", "%109", "%110", "%111", "%112", "%113") } \
  else if constexpr (N == 224) { QT_WGMMA_SS(224, 112, "%112", "%113", "%114", "%115", "%116", "%117") } \
  else if constexpr (N == 232) { QT_WGMMA_SS(232, 116, "%116", "%117", "%118", "%119", "%120", "%121") } \
  else if constexpr (N == 240) { QT_WGMMA_SS(240, 120, "%120", "%121", "%122", "%123", "%124", "%125") } \
  else if constexpr (N == 248) { QT_WGMMA_SS(248, 124, "%124", "%125", "%126", "%127", "%128", "%129") } \
  else if constexpr (N == 256) { QT_WGMMA_SS(256, 128, "%128", "%129", "%130", "%131", "%132", "%133") }
#define QT_WGMMA_RS_ALL \
  if constexpr (N == 8) { QT_WGMMA_RS(8, 4, "%4", "%5", "%6", "%7", "%8", "%9", "%10", "%11") } \
  else if constexpr (N == 16) { QT_WGMMA_RS(16, 8, "%8", "%9", "%10", "%11", "%12", "%13", "%14", "%15") } \
  else if constexpr (N == 24) { QT_WGMMA_RS(24, 12, "%12", "%13", "%14", "%15", "%16", "%17", "%18", "%19") } \
  else if constexpr (N == 32) { QT_WGMMA_RS(32, 16, "%16", "%17", "%18", "%19", "%20", "%21", "%22", "%23") } \
  else if constexpr (N == 40) { QT_WGMMA_RS(40, 20, "%20", "%21", "%22", "%23", "%24", "%25", "%26", "%27") } \
  else if constexpr (N == 48) { QT_WGMMA_RS(48, 24, "%24", "%25", "%26", "%27", "%28", "%29", "%30", "%31") } \
  else if constexpr (N == 56) { QT_WGMMA_RS(56, 28, "%28", "%29", "%30", "%31", "%32", "%33", "%34", "%35") } \
  else if constexpr (N == 64) { QT_WGMMA_RS(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38", "%39") } \
  else if constexpr (N == 72) { QT_WGMMA_RS(72, 36, "%36", "%37", "%38", "%39", "%40", "%41", "%42", "%43") } \
  else if constexpr (N == 80) { QT_WGMMA_RS(80, 40, "%40", "%41", "%42", "%43", "%44", "%45", "%46", "%47") } \
  else if constexpr (N == 88) { QT_WGMMA_RS(88, 44, "%44", "%45", "%46", "%47", "%48", "%49", "%50", "%51") } \
  else if constexpr (N == 96) { QT_WGMMA_RS(96, 48, "%48", "%49", "%50", "%51", "%52", "%53", "%54", "%55") } \
  else if constexpr (N == 104) { QT_WGMMA_RS(104, 52, "%52", "%53", "%54", "%55", "%56", "%57", "%58", "%59") } \
  else if constexpr (N == 112) { QT_WGMMA_RS(112, 56, "%56", "%57", "%58", "%59", "%60", "%61", "%62", "%63") } \
  else if constexpr (N == 120) { QT_WGMMA_RS(120, 60, "%60", "%61", "%62", "%63", "%64", "%65", "%66", "%67") } \
  else if constexpr (N == 128) { QT_WGMMA_RS(128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70", "%71") } \
  else if constexpr (N == 136) { QT_WGMMA_RS(136, 68, "%68", "%69", "%70", "%71", "%72", "%73", "%74", "%75") } \
  else if constexpr (N == 144) { QT_WGMMA_RS(144, 72, "%72", "%73", "%74", "%75", "%76", "%77", "%78", "%79") } \
  else if constexpr (N == 152) { QT_WGMMA_RS(152, 76, "%76", "%77", "%78", "%79", "%80", "%81", "%82", "%83") } \
  else if constexpr (N == 160) { QT_WGMMA_RS(160, 80, "%80", "%81", "%82", "%83", "%84", "%85", "%86", "%87") } \
  else if constexpr (N == 168) { QT_WGMMA_RS(168, 84, "%84", "%85", "%86", "%87", "%88", "%89", "%90", "%91") } \
  else if constexpr (N == 176) { QT_WGMMA_RS(176, 88, "%88", "%89", "%90", "%91", "%92", "%93", "%94", "%95") } \
  else if constexpr (N == 184) { QT_WGMMA_RS(184, 92, "%92", "%93", "%94", "%95", "%96", "%97", "%98", "%99") } \
  else if constexpr (N == 192) { QT_WGMMA_RS(192, 96, "%96", "%97", "%98", "%99", "%100", "%101", "%102", "%103") } \
  else if constexpr (N == 200) { QT_WGMMA_RS(200, 100, "%100", "%101", "%102", "%103", "%104", "%105", "%106", "%107") } \
  else if constexpr (N == 208) { QT_WGMMA_RS(208, 104, "%104", "%105", "%106", "%107", "%108", "%109", "%110", "%111") } \
  else if constexpr (N == 216) { QT_WGMMA_RS(216, 108, "%108", "%109", "%110", "%111", "%112", "%113", "%114", "%115") } \
  else if constexpr (N == 224) { QT_WGMMA_RS(224, 112, "%112", "%113", "%114", "%115", "%116", "%117", "%118", "%119") } \
  else if constexpr (N == 232) { QT_WGMMA_RS(232, 116, "%116", "%117", "%118", "%119", "%120", "%121", "%122", "%123") } \
  else if constexpr (N == 240) { QT_WGMMA_RS(240, 120, "%120", "%121", "%122", "%123", "%124", "%125", "%126", "%127") } \
  else if constexpr (N == 248) { QT_WGMMA_RS(248, 124, "%124", "%125", "%126", "%127", "%128", "%129", "%130", "%131") } \
  else if constexpr (N == 256) { QT_WGMMA_RS(256, 128, "%128", "%129", "%130", "%131", "%132", "%133", "%134", "%135") }
// clang-format on

/// Issues d = a b, plus d if accumulate. kTrans: that operand is MN-major.
template <int N, bool kTransA = false, bool kTransB = false, typename T = bf16>
QT_DEVICE void wgmma([[maybe_unused]] float (&d)[N / 2], [[maybe_unused]] uint64_t a,
                     [[maybe_unused]] uint64_t b, [[maybe_unused]] bool accumulate) {
  static_assert(N % 8 == 0 && N >= 8 && N <= 256);
#if QT_SM90A
  QT_WGMMA_SS_ALL
#endif
}
/// The same with A in registers.
template <int N, bool kTransB = false, typename T = bf16>
QT_DEVICE void wgmma([[maybe_unused]] float (&d)[N / 2], [[maybe_unused]] const uint32_t (&a)[4],
                     [[maybe_unused]] uint64_t b, [[maybe_unused]] bool accumulate) {
  static_assert(N % 8 == 0 && N >= 8 && N <= 256);
#if QT_SM90A
  QT_WGMMA_RS_ALL
#endif
}
#undef QT_WGMMA_SS_ALL
#undef QT_WGMMA_RS_ALL
#undef QT_WGMMA_SS
#undef QT_WGMMA_RS
#undef QT_WGMMA_TYPE

#endif

}  // namespace quintet::QT_GPU::simt
