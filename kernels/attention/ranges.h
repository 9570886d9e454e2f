#pragma once
// Masks as ranges of keys, which the GPU's kernels read: once a batch for all calls with the same mask.
//
//   attention_ranges  q_segments [b, q], kv_segments [b, k], prefix? [b, k]; causal  ->  ranges int32 [b, n]
//
// A sequence's are, of each tile of 64 queries, four numbers: begin and end of the keys that any of them attends
// to, begin and end of those that all of them do; then of each query two: begin and end of its keys, with
// kHolesBit if it does not attend to all of them, and with kNoneBit, of [0, k), if no key is allowed; then zeros.

#include <cstdint>

namespace quintet::attention {

inline constexpr int kTileQueries = 64;
inline constexpr int kHolesBit = 1 << 30, kNoneBit = 1 << 31, kEndMask = kHolesBit - 1;

/// The n of `queries`: a multiple of 4.
inline int64_t ranges_length(int64_t queries) {
  return 4 * ((queries + kTileQueries - 1) / kTileQueries) + (queries + 1) / 2 * 4;
}

}  // namespace quintet::attention
