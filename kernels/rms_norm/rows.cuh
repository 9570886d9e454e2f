#pragma once
// A row of an array held in the registers of a warp or of a block, in units of 16 bytes: what the
// norm's two passes share.

#include "kernels/dropout/mask.cuh"

namespace quintet::QT_GPU {

/// kThreads threads (a warp, or a block of kBlockThreads) hold a row of `depth` elements, at most
/// kUnits units each; unit u of thread t is the row's unit u * kThreads + t.
template <typename T, int kThreads_, int kUnits_>
struct RowShape {
  using Type = T;
  static constexpr int kThreads = kThreads_, kUnits = kUnits_, kLane = kLanes<T>;
  static constexpr int kRows = kBlockThreads / kThreads;  // of a block
  static_assert(kThreads == 32 || kThreads == kBlockThreads);
};

inline int32_t checked_depth(int64_t depth) {
  QT_ASSERT(depth < int64_t{1} << 30);  // columns are counted in 32 bits
  return static_cast<int32_t>(depth);
}

template <typename S>
struct RowTile {
  uint32_t words[S::kUnits][4];
};

template <typename S>
QT_DEVICE int row_thread() {
  return static_cast<int>(threadIdx.x) % S::kThreads;
}
/// First element of unit u of this thread.
template <typename S>
QT_DEVICE int unit_begin(int u) {
  return (u * S::kThreads + row_thread<S>()) * S::kLane;
}
/// Calls body(u, first element) for the units of this thread that the row has.
template <typename S, typename Body>
QT_DEVICE void for_row_units(int depth, const Body& body) {
#pragma unroll
  for (int u = 0; u < S::kUnits; ++u) {
    const int begin = unit_begin<S>(u);
    if (begin < depth) body(u, begin);
  }
}
template <typename S>
QT_DEVICE void load_tile(const typename S::Type* row, int depth, RowTile<S>& tile) {
  for_row_units<S>(depth, [&](int u, int begin) { load_words(row + begin, tile.words[u]); });
}
/// Sum over the threads of a row. `workspace`: 32 floats.
template <typename S>
QT_DEVICE float row_sum(float v, simt::Shared<float> workspace) {
  if constexpr (S::kThreads == 32)
    return warp_sum(v);
  else
    return block_sum(v, workspace);
}

/// sums [depth] of the rows of partials [parts, depth], in an order that depends on `parts` alone, added to
/// `addend` [depth], float32 and perhaps `sums` itself; null: nothing.
void sum_partials_gpu(const float* partials, int64_t parts, int32_t depth, const void* addend,
                      float* sums, Stream stream);

}  // namespace quintet::QT_GPU
