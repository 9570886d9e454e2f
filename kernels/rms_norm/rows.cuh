#pragma once
// A row of an array held in the registers of a warp or of a block, in units of 16 bytes, and its dropout mask: what the
// norm's two passes share.

#include "kernels/dropout/mask.cuh"
#include "kernels/simt/memory/store.cuh"

namespace quintet::QT_GPU {

/// kThreads threads (a warp, or a block of kBlockThreads) hold a row of `depth` elements, at most
/// kUnits units each; unit u of thread t is the row's unit u * kThreads + t. kFull: `depth` is what they can hold, a
/// constant, so that no unit is asked whether the row has it.
template <typename T, int kThreads_, int kUnits_, bool kFull_ = false>
struct RowShape {
  using Type = T;
  static constexpr int kThreads = kThreads_, kUnits = kUnits_, kLane = kLanes<T>;
  static constexpr bool kFull = kFull_;
  static constexpr int kRows = kBlockThreads / kThreads;  // of a block
  static_assert(kThreads == 32 || kThreads == kBlockThreads);

  __device__ static int depth(int any) { return kFull ? kThreads * kUnits * kLane : any; }
};

/// Calls run(shape) with the RowShape of rows of `depth`; `vector`: addresses are multiples of 16 bytes. False: there is none.
/// A warp's thread holds at most kWarpUnits units, a block's at most 32 elements. kFull: shapes of models' widths in 16 bits
/// are full.
template <typename T, int kWarpUnits, bool kFull, typename Run>
bool for_row_shape(int depth, bool vector, const Run& run) {
  const int units = depth / kLanes<T>;
  constexpr int kMost = 32 / kLanes<T>;
  if (!vector || depth % kLanes<T> != 0 || units > kBlockThreads * kMost) return false;
  if constexpr (kFull && sizeof(T) == 2) {
    if (depth == 512) return run(RowShape<T, 32, 2, true>{}), true;
    if (depth == 768) return run(RowShape<T, 32, 3, true>{}), true;
    if (depth == 1024) return run(RowShape<T, 32, 4, true>{}), true;
    if constexpr (kWarpUnits < 8)
      if (depth == 2048) return run(RowShape<T, kBlockThreads, 1, true>{}), true;
    if (depth == 4096) return run(RowShape<T, kBlockThreads, 2, true>{}), true;
  }
  if (units <= 32 * kMost / 4) {
    run(RowShape<T, 32, kMost / 4>{});
  } else if (units <= 32 * kMost / 2) {
    run(RowShape<T, 32, kMost / 2>{});
  } else if (units <= 32 * kMost) {
    run(RowShape<T, 32, kMost>{});
  } else if (units <= 32 * kWarpUnits) {
    if constexpr (kWarpUnits > kMost)
      run(RowShape<T, 32, kWarpUnits>{});  // still without a block's barriers
  } else if (units <= kBlockThreads * kMost / 4) {
    run(RowShape<T, kBlockThreads, kMost / 4>{});
  } else if (units <= kBlockThreads * kMost / 2) {
    run(RowShape<T, kBlockThreads, kMost / 2>{});
  } else {
    run(RowShape<T, kBlockThreads, kMost>{});
  }
  return true;
}

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
  return static_cast<int>(threadIdx.x % S::kThreads);
}
/// First element of unit u of this thread.
template <typename S>
QT_DEVICE int unit_begin(int u) {
  return row_thread<S>() * S::kLane + u * (S::kThreads * S::kLane);
}
/// Calls body(u, first element) for the units of this thread that the row has.
template <typename S, typename Body>
QT_DEVICE void for_row_units(int depth, const Body& body) {
#pragma unroll
  for (int u = 0; u < S::kUnits; ++u) {
    const int begin = unit_begin<S>(u);
    if (S::kFull || begin < depth) body(u, begin);
  }
}
template <typename S>
QT_DEVICE void load_tile(const typename S::Type* row, int depth, RowTile<S>& tile) {
  for_row_units<S>(depth, [&](int u, int begin) { load_words(row + begin, tile.words[u]); });
}
/// kLanes<T> floats as a unit of global memory.
template <typename T>
QT_DEVICE void store_unit(T* to, const float (&v)[kLanes<T>]) {
  uint32_t words[4];
  pack_words<T>(v, words);
  simt::store_16(to, words);
}

/// Bits of a dropout mask: none, made once for rows that share them, or each element's.
enum class MaskBits { none, shared, each };

/// Calls run(std::integral_constant<MaskBits>) with those of a mask that make_mask() has made.
template <typename Run>
void for_mask_bits(bool has_dropout, const DropoutMask& mask, const Run& run) {
  if (!has_dropout)
    run(std::integral_constant<MaskBits, MaskBits::none>{});
  else if (mask.words != nullptr)
    run(std::integral_constant<MaskBits, MaskBits::shared>{});
  else
    run(std::integral_constant<MaskBits, MaskBits::each>{});
}

/// The mask of a thread's units of a row. Words that rows share are loaded at once, as one latency.
template <typename S, MaskBits kBits>
class RowMask {
 public:
  __device__ RowMask(const DropoutMask& mask, int64_t row, int depth) : mask_(mask), row_(row) {
    if constexpr (kBits == MaskBits::shared) {
      const uint32_t* words = mask.words_of(row) + unit_begin<S>(0) / 32;
      for_row_units<S>(depth,
                       [&](int u, int) { words_[u] = words[u * (S::kThreads * S::kLane / 32)]; });
    }
  }
  /// v = dropout(v), of unit u, which begins at element `at`.
  __device__ void drop(int u, int at, float (&v)[S::kLane]) const {
    if constexpr (kBits != MaskBits::none) {
      uint32_t bits;
      if constexpr (kBits == MaskBits::shared)
        bits = words_[u] >> (unit_begin<S>(0) % 32);
      else
        bits = mask_.template bits<S::kLane>(row_, at);
#pragma unroll
      for (int k = 0; k < S::kLane; ++k) v[k] = dropped(mask_.rule.scale, bits >> k & 1u, v[k]);
    }
  }

 private:
  const DropoutMask& mask_;
  int64_t row_;
  uint32_t words_[S::kUnits];
};

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
