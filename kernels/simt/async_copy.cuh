#pragma once
// cp.async: copies from global to shared memory past the registers, in groups of the issuing
// thread. PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy: non-bulk copy".
// After cp_async_wait<N>() all but the thread's N newest groups have arrived, and are visible to
// this thread only: others need a barrier after it.

#include "kernels/simt/shared.cuh"

#ifdef QUINTET_EMULATE
#include "kernels/simt/emulator/async_copy.h"
#endif

namespace quintet::QT_GPU::simt {

#ifdef QUINTET_EMULATE
QT_DEVICE void cp_async_16(void* dst, const void* src, bool valid = true) {
  emulator::cp_async(dst, src, 16, valid);
}
QT_DEVICE void cp_async_8(void* dst, const void* src, bool valid = true) {
  emulator::cp_async(dst, src, 8, valid);
}
QT_DEVICE void cp_async_4(void* dst, const void* src, bool valid = true) {
  emulator::cp_async(dst, src, 4, valid);
}
QT_DEVICE void cp_async_commit() { emulator::cp_async_commit(); }
template <int N>
QT_DEVICE void cp_async_wait() {
  emulator::cp_async_wait(N);
}
#else
/// 16 bytes, both addresses multiples of 16, past L1. Not valid: zeros, and src is not read.
QT_DEVICE void cp_async_16(void* dst, const void* src, bool valid = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(dst)), "l"(src),
               "r"(valid ? 16 : 0)
               : "memory");
}
QT_DEVICE void cp_async_8(void* dst, const void* src, bool valid = true) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(dst)), "l"(src),
               "r"(valid ? 8 : 0)
               : "memory");
}
QT_DEVICE void cp_async_4(void* dst, const void* src, bool valid = true) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(dst)), "l"(src),
               "r"(valid ? 4 : 0)
               : "memory");
}
/// Ends the thread's current group of copies.
QT_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most N of the thread's groups are under way.
template <int N>
QT_DEVICE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
#endif

/// The bytes around `p` in global memory come into the second-level cache; nothing tells when. (PTX "prefetch".) The
/// emulator reads one, so that AddressSanitizer sees what is outside of an array.
QT_DEVICE void prefetch_l2(const void* p) {
#ifdef QUINTET_EMULATE
  (void)*static_cast<const volatile char*>(p);
#else
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#endif
}

}  // namespace quintet::QT_GPU::simt
