#pragma once
// One call of attention as the CPU kernels see it: sizes, pointers, the bias by relative position,
// and for every query the keys it may attend to. Shared by the forward and the gradient kernel.

#include <cstdint>
#include <vector>

#include "kernels/attention/buckets.h"
#include "kernels/kernel.h"
#include "runtime/base/threefry.h"

namespace quintet::attention {

/// The keys a query may attend to lie in [begin, end).
struct AllowedKeys {
  int32_t begin = 0, end = 0;
  bool has_holes = false;  // not every key in between is allowed: ask Problem::allowed
  bool none() const { return begin >= end; }  // a query that attends to all keys alike
};

struct Problem {
  int64_t batch = 0, heads = 0, queries = 0, keys = 0, depth = 0;  // heads: held here
  const float *q = nullptr, *k = nullptr, *v = nullptr;
  const int32_t *q_segments = nullptr, *kv_segments = nullptr, *prefix = nullptr;
  bool causal = false;
  float scale = 1;
  int64_t first_relative = 0;  // position of key 0 minus position of query 0
  BucketRule rule;
  std::vector<float>
      bias_diagonals;  // table[h, bucket] by relative position, a row a head; see head_diagonals()
  int64_t diagonals_stride = 0;  // 0: no table, one row of zeros
  std::vector<int32_t> buckets;  // of first_relative - (queries - 1) and up; empty: no table
  std::vector<float> keep;       // [batch, heads, keys] and kDiagonalsPadding; empty: no dropout
  std::vector<AllowedKeys> allowed_keys;  // [batch, queries]

  /// Checks shapes and attributes of the op's first seven operands and prepares all of the above.
  Problem(Views in, const Attrs& attrs);

  int64_t row_stride() const { return heads * depth; }
  /// First element of row `row` of head `head` of x, one of [batch, length, heads * depth].
  template <typename T>
  T* head_rows(T* x, int64_t length, int64_t b, int64_t head, int64_t row = 0) const {
    return x + (b * length + row) * row_stride() + head * depth;
  }
  /// The bias of query `query` and key 0; those of the next keys follow (readable to
  /// kDiagonalsPadding floats beyond the last key).
  const float* head_diagonals(int64_t head, int64_t query) const {
    return bias_diagonals.data() + head * diagonals_stride + (queries - 1 - query);
  }
  const float* keep_row(int64_t b, int64_t head) const {
    return keep.empty() ? nullptr : keep.data() + (b * heads + head) * keys;
  }
  const AllowedKeys& allowed_of(int64_t b, int64_t query) const {
    return allowed_keys[static_cast<size_t>(b * queries + query)];
  }
  /// The mask itself, key by key.
  bool allowed(int64_t b, int64_t query, int64_t key) const;

 private:
  void read_masks(Views in);
  void make_bias_diagonals(const View& table, const Attrs& attrs);
  void draw_keep(const View& q_view, int64_t all_heads, double rate, Key key);
  void find_allowed_keys();
  /// The keys of the query's segment, whatever their order.
  AllowedKeys segment_keys(int64_t b, int64_t query) const;
  /// The allowed keys in [begin, end), one by one.
  AllowedKeys allowed_in(int64_t b, int64_t query, int64_t begin, int64_t end) const;
};

/// What the forward pass left behind, and where its gradients go.
struct Gradients {
  const float *out = nullptr, *lse = nullptr, *dout = nullptr;
  float *dq = nullptr, *dk = nullptr, *dv = nullptr;
  float* dbias_diagonals =
      nullptr;  // [batch, heads, queries + keys] by relative position; null: no table
};

/// Vector loads may run past the diagonals by less than this.
inline constexpr int64_t kDiagonalsPadding = 64;

}  // namespace quintet::attention
