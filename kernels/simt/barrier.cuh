#pragma once
// Barriers among some warps of a block, barriers that count arrivals and bytes (mbarrier), fences
// of the asynchronous proxy, and the exchange of registers between warpgroups. PTX ISA, "Parallel
// Synchronization and Communication Instructions": barrier, mbarrier, membar/fence; "Miscellaneous
// Instructions": setmaxnreg. All but named barriers need sm_90.
//
// An mbarrier is a uint64_t in shared memory. Its phase is complete when `count` threads have
// arrived and all expected bytes have; then the next phase begins. mbarrier_wait(bar, parity)
// returns once the phase of that parity is complete: a consumer waits for parities 0, 1, 0, ...; a
// producer whose buffers start out free waits on the "empty" barrier for 1, 0, 1, ...

#include "kernels/simt/shared.cuh"

#ifdef QUINTET_EMULATE
#include "kernels/simt/emulator/barrier.h"
#endif

namespace quintet::QT_GPU::simt {

#ifdef QUINTET_EMULATE
QT_DEVICE void named_barrier_sync(int id, int threads) {
  emulator::block_barrier(static_cast<unsigned>(id), static_cast<unsigned>(threads), false,
                          "named_barrier_sync");
}
QT_DEVICE void named_barrier_arrive(int id, int threads) {
  emulator::block_barrier(static_cast<unsigned>(id), static_cast<unsigned>(threads), true,
                          "named_barrier_arrive");
}
QT_DEVICE void mbarrier_init(uint64_t* bar, uint32_t count) { emulator::mbarrier_init(bar, count); }
QT_DEVICE void mbarrier_arrive(uint64_t* bar, uint32_t count = 1) {
  emulator::mbarrier_arrive(bar, count, 0);
}
QT_DEVICE void mbarrier_arrive_expect_tx(uint64_t* bar, uint32_t bytes) {
  emulator::mbarrier_arrive(bar, 1, bytes);
}
QT_DEVICE void mbarrier_expect_tx(uint64_t* bar, uint32_t bytes) {
  emulator::mbarrier_arrive(bar, 0, bytes);
}
QT_DEVICE void mbarrier_arrive_cluster(uint64_t* bar, uint32_t rank) {
  emulator::mbarrier_arrive(emulator::map_cluster(bar, rank), 1, 0);
}
QT_DEVICE bool mbarrier_test(uint64_t* bar, uint32_t parity) {
  return emulator::mbarrier_test(bar, parity);
}
QT_DEVICE void mbarrier_wait(uint64_t* bar, uint32_t parity) {
  emulator::mbarrier_wait(bar, parity);
}
QT_DEVICE void mbarrier_wait_cluster(uint64_t* bar, uint32_t parity) {
  emulator::mbarrier_wait(bar, parity);
}
QT_DEVICE void fence_barrier_init() {}
QT_DEVICE void fence_async_shared() { emulator::fence_async(); }
QT_DEVICE void fence_async() { emulator::fence_async(); }
template <int N>
QT_DEVICE void register_alloc() {
  static_assert(N >= 24 && N <= 256 && N % 8 == 0, "setmaxnreg: a multiple of 8 in [24, 256]");
}
template <int N>
QT_DEVICE void register_dealloc() {
  register_alloc<N>();
}
QT_DEVICE void forget(int&) {}
#else
/// Waits at barrier `id` (1-15; 0 is __syncthreads) until `threads` threads, a multiple of 32, have
/// arrived. Whole warps call it.
QT_DEVICE void named_barrier_sync(int id, int threads) {
  asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
/// Arrives without waiting.
QT_DEVICE void named_barrier_arrive(int id, int threads) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#if QT_SM90A
#define QT_SM90_BODY(...) __VA_ARGS__
#else
// Other passes: never reached, since the host chooses these kernels by device().sm == 90.
#define QT_SM90_BODY(...) __trap()
#endif

/// One thread, before a barrier of all that use it (and fence_barrier_init() for copies and
/// clusters).
QT_DEVICE void mbarrier_init([[maybe_unused]] uint64_t* bar, [[maybe_unused]] uint32_t count) {
  QT_SM90_BODY(
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count)
                   : "memory"));
}
/// `count` arrivals; what this thread did before is seen by those that wait.
QT_DEVICE void mbarrier_arrive([[maybe_unused]] uint64_t* bar,
                               [[maybe_unused]] uint32_t count = 1) {
  QT_SM90_BODY(asm volatile(
      "mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)), "r"(count)
      : "memory"));
}
/// One arrival, and `bytes` more to come in this phase.
QT_DEVICE void mbarrier_arrive_expect_tx([[maybe_unused]] uint64_t* bar,
                                         [[maybe_unused]] uint32_t bytes) {
  QT_SM90_BODY(asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)),
      "r"(bytes)
      : "memory"));
}
QT_DEVICE void mbarrier_expect_tx([[maybe_unused]] uint64_t* bar, [[maybe_unused]] uint32_t bytes) {
  QT_SM90_BODY(asm volatile(
      "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)),
      "r"(bytes)
      : "memory"));
}
/// Arrives at the barrier at the same place in the block of that rank of the cluster.
QT_DEVICE void mbarrier_arrive_cluster([[maybe_unused]] uint64_t* bar,
                                       [[maybe_unused]] uint32_t rank) {
  QT_SM90_BODY(
      asm volatile("{\n.reg .b32 remote;\n"
                   "mapa.shared::cluster.u32 remote, %0, %1;\n"
                   "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n}" ::"r"(
                       shared_address(bar)),
                   "r"(rank)
                   : "memory"));
}
/// Whether the phase of `parity` is complete; may wait a little first.
QT_DEVICE bool mbarrier_test([[maybe_unused]] uint64_t* bar, [[maybe_unused]] uint32_t parity) {
  uint32_t done = 1;
  QT_SM90_BODY(
      asm volatile("{\n.reg .pred p;\n"
                   "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                   "selp.u32 %0, 1, 0, p;\n}"
                   : "=r"(done)
                   : "r"(shared_address(bar)), "r"(parity)
                   : "memory"));
  return done != 0;
}
QT_DEVICE void mbarrier_wait(uint64_t* bar, uint32_t parity) {
  while (!mbarrier_test(bar, parity)) {
  }
}
/// The same, where other blocks of the cluster arrive: what their threads wrote before is seen.
QT_DEVICE void mbarrier_wait_cluster([[maybe_unused]] uint64_t* bar,
                                     [[maybe_unused]] uint32_t parity) {
  uint32_t done = 1;
  do {
    QT_SM90_BODY(
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(shared_address(bar)), "r"(parity)
                     : "memory"));
  } while (done == 0);
}
/// After mbarrier_init, before the cluster's barrier or the first asynchronous copy.
QT_DEVICE void fence_barrier_init() {
  QT_SM90_BODY(asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"));
}
/// Ordinary writes of this thread to shared memory become visible to the asynchronous proxy: wgmma
/// operands and the sources of TMA and bulk stores. Then a barrier, then the instruction.
QT_DEVICE void fence_async_shared() {
  QT_SM90_BODY(asm volatile("fence.proxy.async.shared::cta;" ::: "memory"));
}
/// The same for global memory too.
QT_DEVICE void fence_async() { QT_SM90_BODY(asm volatile("fence.proxy.async;" ::: "memory")); }

/// Registers a thread of this warpgroup, up or down: all its warps call it. sm_90a, in kernels with
/// __launch_bounds__(threads, 1).
template <int N>
QT_DEVICE void register_alloc() {
#if QT_SM90A
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
#endif
}
template <int N>
QT_DEVICE void register_dealloc() {
#if QT_SM90A
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#endif
}
/// What the compiler knows of `x` ends here: it computes what depends on it anew instead of holding
/// that in registers from before a loop on, where there are none to spare.
QT_DEVICE void forget(int& x) { asm volatile("" : "+r"(x)); }
#endif

}  // namespace quintet::QT_GPU::simt
