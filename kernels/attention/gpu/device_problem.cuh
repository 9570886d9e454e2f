#pragma once
// One call of attention as device code sees it: sizes, masks as a range of keys for each query, and
// the bias by relative position. Made by prepare.cuh; passed to kernels by value.

#include <cstdint>

#include "kernels/attention/ranges.h"
#include "kernels/simt/simt.cuh"

namespace quintet::QT_GPU::attention {

using quintet::attention::kEndMask, quintet::attention::kHolesBit, quintet::attention::kNoneBit;
using quintet::attention::kTileQueries;
using simt::bf16;

/// The keys a query may attend to: those in [begin, end), with holes some of them (ask allowed()).
/// A query without an allowed key (none) attends to all of [0, keys) alike.
struct RowKeys {
  int begin, end;
  bool holes, none;
};

/// What the rows of a tile of queries have in common. Keys outside [begin, end) need not be
/// visited; every row attends, mask or not, to those in [inner_begin, inner_end).
struct TileKeys {
  int begin, end, inner_begin, inner_end;
};

/// T5's relative position buckets (buckets.h). Distances at which a side goes on to its next
/// bucket, the exact ones aside, are found on the host, where the logarithm is the one the CPU
/// kernel takes.
struct Buckets {
  static constexpr int kMost = 256;
  bool bidirectional;
  int side, exact, count;
  int edges[kMost];

  __device__ int of(int relative) const {
    const int first = bidirectional && relative > 0 ? side : 0;
    const int distance = relative <= 0 ? -relative : bidirectional ? relative : 0;
    if (distance < exact) return first + distance;
    int beyond = 0;
    while (beyond < count && edges[beyond] <= distance) ++beyond;
    return first + exact + beyond;
  }
};

struct Problem {
  int batch, heads, queries, keys, depth;
  int first_relative;  // position of key 0 minus position of query 0
  int reach;           // relative positions beyond +-reach have the bias of +-reach
  float scale;
  float keep_scale;  // what a value that dropout kept is multiplied with; 1 without dropout
  bool causal;
  const int32_t *q_segments, *kv_segments, *prefix;  // null: not given
  const int4* ranges;  // [batch, ranges_stride]: ranges.h; null: they follow from `causal`
  int ranges_stride;
  const float* table;  // [heads, buckets]; null: none
  int buckets;
  float table_factor;  // what the table is multiplied with
  Buckets rule;

  /// Bias of a relative position, times table_factor.
  __device__ float bias(int head, int relative) const {
    return table_factor * table[static_cast<int64_t>(head) * buckets + rule.of(relative)];
  }

  /// First element of row `row` of one of [batch, length, heads * depth].
  __device__ int64_t offset(int length, int b, int row, int head) const {
    return (static_cast<int64_t>(b) * length + row) * (heads * depth) + head * depth;
  }
  __device__ int query_tiles() const { return (queries + kTileQueries - 1) / kTileQueries; }
  /// In `ranges`: of a sequence's tiles, and of its queries.
  __device__ int64_t tiles_at(int b) const { return static_cast<int64_t>(b) * ranges_stride; }
  __device__ int64_t rows_at(int b) const { return tiles_at(b) + query_tiles(); }
  /// The range of a sequence's query is row_ranges()[row_at(b, i)] (row_keys).
  __device__ const int2* row_ranges() const { return reinterpret_cast<const int2*>(ranges); }
  __device__ int64_t row_at(int b, int i) const { return 2 * rows_at(b) + i; }
};

/// x, of which the compiler knows nothing: no register holds what follows from it from before a loop on.
__device__ inline int opaque(int x) {
  simt::forget(x);
  return x;
}

/// One past the last key at or before the position of query i.
__device__ inline int causal_end(const Problem& p, int i) {
  const int end = i - p.first_relative + 1;
  return end < 0 ? 0 : end > p.keys ? p.keys : end;
}

/// Keys of query i of sequence b; nothing for i >= queries.
__device__ inline RowKeys row_keys(const Problem& p, int b, int i) {
  if (i >= p.queries) return {0, 0, false, false};
  if (p.ranges == nullptr) return {0, p.causal ? causal_end(p, i) : p.keys, false, false};
  const int2 packed = p.row_ranges()[p.row_at(b, i)];
  return {packed.x, packed.y & kEndMask, (packed.y & kHolesBit) != 0, (packed.y & kNoneBit) != 0};
}

/// Keys of queries [first, first + count); first is a multiple of kTileQueries.
__device__ inline TileKeys tile_keys(const Problem& p, int b, int first, int count) {
  int last = first + count;
  if (last > p.queries) last = p.queries;
  if (p.ranges == nullptr) {
    if (!p.causal) return {0, p.keys, 0, p.keys};
    return {0, causal_end(p, last - 1), 0, causal_end(p, first)};
  }
  TileKeys keys{p.keys, 0, 0, p.keys};
#pragma unroll 1
  for (int i = first; i < last; i += kTileQueries) {
    const int4 t = p.ranges[p.tiles_at(b) + i / kTileQueries];
    keys.begin = min(keys.begin, t.x);
    keys.end = max(keys.end, t.y);
    keys.inner_begin = max(keys.inner_begin, t.z);
    keys.inner_end = min(keys.inner_end, t.w);
  }
  return keys;
}

/// The mask itself, key by key; i < queries, j < keys.
__device__ inline bool allowed(const Problem& p, int b, int i, int j) {
  if (p.q_segments != nullptr) {
    const int32_t segment = p.q_segments[static_cast<int64_t>(b) * p.queries + i];
    if (segment == 0 || segment != p.kv_segments[static_cast<int64_t>(b) * p.keys + j])
      return false;
  }
  const int self_key = i - p.first_relative;  // the key at the query's position
  if (!p.causal || j <= self_key) return true;
  if (p.prefix == nullptr || self_key < 0 || self_key >= p.keys) return false;
  const int32_t* flags = p.prefix + static_cast<int64_t>(b) * p.keys;
  return flags[self_key] != 0 && flags[j] != 0;
}

/// Whether query i attends to key j (of a row whose range is `row`), masked or not.
__device__ inline bool attends(const Problem& p, int b, int i, int j, const RowKeys& row) {
  if (j < row.begin || j >= row.end) return false;
  return !row.holes || allowed(p, b, i, j);
}

__device__ inline int clamp_relative(int relative, int reach) {
  return relative < -reach ? -reach : relative > reach ? reach : relative;
}

}  // namespace quintet::QT_GPU::attention
