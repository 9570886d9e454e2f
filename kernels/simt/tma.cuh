#pragma once
// Copies by the TMA engine (sm_90): tiles of a tensor, and plain runs of bytes. One thread issues
// them. PTX ISA, "Asynchronous copy: bulk copy" (cp.async.bulk, cp.reduce.async.bulk) and "Tensor
// copy" (cp.async.bulk.tensor, cp.reduce.async.bulk.tensor).
//
// Loads count their bytes (the whole box, also what is out of bounds and becomes zero) on an
// mbarrier:
//   mbarrier_arrive_expect_tx(bar, bytes); tma_load_2d(tile, map, bar, column, row);
//   mbarrier_wait(bar, parity);                        // all threads that read the tile
// Stores read shared memory later and are waited for in groups of the issuing thread:
//   fence_async_shared(); barrier; tma_store_2d(map, tile, column, row); tma_store_commit();
//   tma_store_wait_read<0>();                          // the tile may be overwritten
// Coordinates go from the fastest axis. Tiles lie at multiples of 128 bytes (of 1024 with swizzle).

#include "kernels/simt/barrier.cuh"
#include "kernels/simt/cluster.cuh"
#include "kernels/simt/tensor_map.h"

#ifdef QUINTET_EMULATE
#include "kernels/simt/emulator/tma.h"
#endif

namespace quintet::QT_GPU::simt {

#ifdef QUINTET_EMULATE

#define QT_TMA(rank, COORDS, LIST)                                                            \
  QT_DEVICE void tma_load_##rank##d(void* dst, const TensorMap& map, uint64_t* bar, COORDS) { \
    emulator::tensor_load(dst, map, bar, {LIST}, rank, 0);                                    \
  }                                                                                           \
  QT_DEVICE void tma_load_multicast_##rank##d(void* dst, const TensorMap& map, uint64_t* bar, \
                                              uint16_t ranks, COORDS) {                       \
    emulator::tensor_load(dst, map, bar, {LIST}, rank, ranks);                                \
  }                                                                                           \
  QT_DEVICE void tma_store_##rank##d(const TensorMap& map, const void* src, COORDS) {         \
    emulator::tensor_store(map, src, {LIST}, rank, false);                                    \
  }                                                                                           \
  QT_DEVICE void tma_reduce_add_##rank##d(const TensorMap& map, const void* src, COORDS) {    \
    emulator::tensor_store(map, src, {LIST}, rank, true);                                     \
  }
#define QT_ARGS(...) __VA_ARGS__
QT_TMA(2, QT_ARGS(int c0, int c1), QT_ARGS(c0, c1))
QT_TMA(3, QT_ARGS(int c0, int c1, int c2), QT_ARGS(c0, c1, c2))
QT_TMA(4, QT_ARGS(int c0, int c1, int c2, int c3), QT_ARGS(c0, c1, c2, c3))
#undef QT_TMA
#undef QT_ARGS
QT_DEVICE void tma_prefetch(const TensorMap&) {}
QT_DEVICE void bulk_load(void* dst, const void* src, uint32_t bytes, uint64_t* bar) {
  emulator::bulk_load(dst, src, bytes, bar);
}
QT_DEVICE void bulk_store(void* dst, const void* src, uint32_t bytes) {
  emulator::bulk_store(dst, src, bytes, false);
}
QT_DEVICE void bulk_reduce_add(float* dst, const float* src, uint32_t bytes) {
  emulator::bulk_store(dst, src, bytes, true);
}
QT_DEVICE void tma_store_commit() { emulator::store_commit(); }
template <int N>
QT_DEVICE void tma_store_wait() {
  emulator::store_wait(N, false);
}
template <int N>
QT_DEVICE void tma_store_wait_read() {
  emulator::store_wait(N, true);
}

#else

#if QT_SM90A
#define QT_TMA(rank, COORDS, TEXT, TEXT_LOAD, LIST)                                               \
  QT_DEVICE void tma_load_##rank##d(void* dst, const TensorMap& map, uint64_t* bar, COORDS) {     \
    asm volatile("cp.async.bulk.tensor." #rank                                                    \
                 "d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {" TEXT_LOAD   \
                 "}], [%2];" ::"r"(shared_address(dst)),                                          \
                 "l"(&map), "r"(shared_address(bar)), LIST                                        \
                 : "memory");                                                                     \
  }                                                                                               \
  QT_DEVICE void tma_load_multicast_##rank##d(void* dst, const TensorMap& map, uint64_t* bar,     \
                                              uint16_t ranks, COORDS) {                           \
    asm volatile(                                                                                 \
        "{\n.reg .b16 mask;\ncvt.u16.u32 mask, %3;\n"                                             \
        "cp.async.bulk.tensor." #rank                                                             \
        "d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "         \
        "[%1, {" TEXT "}], [%2], mask;\n}" ::"r"(shared_address(dst)),                            \
        "l"(&map), "r"(shared_address(bar)), "r"(static_cast<uint32_t>(ranks)), LIST              \
        : "memory");                                                                              \
  }                                                                                               \
  QT_DEVICE void tma_store_##rank##d(const TensorMap& map, const void* src, COORDS) {             \
    asm volatile("cp.async.bulk.tensor." #rank "d.global.shared::cta.bulk_group [%0, {" TEXT_LOAD \
                 "}], [%1];" ::"l"(&map),                                                         \
                 "r"(shared_address(src)), "r"(0), LIST                                           \
                 : "memory");                                                                     \
  }                                                                                               \
  QT_DEVICE void tma_reduce_add_##rank##d(const TensorMap& map, const void* src, COORDS) {        \
    asm volatile("cp.reduce.async.bulk.tensor." #rank                                             \
                 "d.global.shared::cta.add.tile.bulk_group [%0, {" TEXT_LOAD                      \
                 "}], [%1];" ::"l"(&map),                                                         \
                 "r"(shared_address(src)), "r"(0), LIST                                           \
                 : "memory");                                                                     \
  }
#else
#define QT_TMA(rank, COORDS, TEXT, TEXT_LOAD, LIST)                                           \
  QT_DEVICE void tma_load_##rank##d(void*, const TensorMap&, uint64_t*, COORDS) { __trap(); } \
  QT_DEVICE void tma_load_multicast_##rank##d(void*, const TensorMap&, uint64_t*, uint16_t,   \
                                              COORDS) {                                       \
    __trap();                                                                                 \
  }                                                                                           \
  QT_DEVICE void tma_store_##rank##d(const TensorMap&, const void*, COORDS) { __trap(); }     \
  QT_DEVICE void tma_reduce_add_##rank##d(const TensorMap&, const void*, COORDS) { __trap(); }
#endif
#define QT_ARGS(...) __VA_ARGS__
/// A box of the tensor at coordinates (c0, c1), to shared memory of this block.
/// multicast: to the same place of every block of the cluster whose bit is set in `ranks`, each of
/// which counts the bytes on its own barrier. reduce_add: adds the box to the tensor (float32:
/// rounded to nearest, in no fixed order); it must begin inside: an H200 traps on negative coordinates.
QT_TMA(2, QT_ARGS([[maybe_unused]] int c0, [[maybe_unused]] int c1), "%4, %5", "%3, %4",
       QT_ARGS("r"(c0), "r"(c1)))
QT_TMA(3, QT_ARGS([[maybe_unused]] int c0, [[maybe_unused]] int c1, [[maybe_unused]] int c2),
       "%4, %5, %6", "%3, %4, %5", QT_ARGS("r"(c0), "r"(c1), "r"(c2)))
QT_TMA(4,
       QT_ARGS([[maybe_unused]] int c0, [[maybe_unused]] int c1, [[maybe_unused]] int c2,
               [[maybe_unused]] int c3),
       "%4, %5, %6, %7", "%3, %4, %5, %6", QT_ARGS("r"(c0), "r"(c1), "r"(c2), "r"(c3)))
#undef QT_TMA
#undef QT_ARGS

/// Brings the map itself into the cache.
QT_DEVICE void tma_prefetch([[maybe_unused]] const TensorMap& map) {
  QT_SM90_BODY(asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory"));
}
/// `bytes` (a multiple of 16, addresses too) from global to shared memory, counted on `bar`.
QT_DEVICE void bulk_load([[maybe_unused]] void* dst, [[maybe_unused]] const void* src,
                         [[maybe_unused]] uint32_t bytes, [[maybe_unused]] uint64_t* bar) {
  QT_SM90_BODY(asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(dst)),
      "l"(src), "r"(bytes), "r"(shared_address(bar))
      : "memory"));
}
/// From shared to global memory, in the thread's current group of stores.
QT_DEVICE void bulk_store([[maybe_unused]] void* dst, [[maybe_unused]] const void* src,
                          [[maybe_unused]] uint32_t bytes) {
  QT_SM90_BODY(
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst),
                   "r"(shared_address(src)), "r"(bytes)
                   : "memory"));
}
/// Adds float32 values to global memory, in no fixed order.
QT_DEVICE void bulk_reduce_add([[maybe_unused]] float* dst, [[maybe_unused]] const float* src,
                               [[maybe_unused]] uint32_t bytes) {
  QT_SM90_BODY(asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(dst),
      "r"(shared_address(src)), "r"(bytes)
      : "memory"));
}
/// Ends the thread's current group of stores.
QT_DEVICE void tma_store_commit() {
  QT_SM90_BODY(asm volatile("cp.async.bulk.commit_group;" ::: "memory"));
}
/// Until all but the thread's N newest groups have been written.
template <int N>
QT_DEVICE void tma_store_wait() {
  QT_SM90_BODY(asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory"));
}
/// Until all but the thread's N newest groups have read their shared memory.
template <int N>
QT_DEVICE void tma_store_wait_read() {
  QT_SM90_BODY(asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"));
}

#endif

}  // namespace quintet::QT_GPU::simt
