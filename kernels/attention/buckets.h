#pragma once
// T5's relative position buckets.
//
//   const BucketRule rule{.bidirectional = true, .buckets = 32, .max_distance = 128};
//   rule.bucket(key_position - query_position)   // in [0, 32)

#include <cstdint>
#include <vector>

namespace quintet {

/// Half of the buckets (bidirectional: half of each half) hold one distance each; the rest grow
/// logarithmically up to max_distance, all in float32 as T5X computes them
/// (t5x examples/t5/layers.py, _relative_position_bucket). Keys after the query share bucket 0
/// unless bidirectional, where they have the upper half of the buckets.
struct BucketRule {
  bool bidirectional = true;
  int64_t buckets = 0, max_distance = 0;  // the model's

  /// Throws a usage error unless at least one distance has a bucket of its own and max_distance is
  /// beyond the last such distance.
  void check() const;
  /// Bucket of the relative position key - query.
  int32_t bucket(int64_t relative_position) const;
  /// Buckets of first, first + 1, ..., first + count - 1.
  std::vector<int32_t> diagonals(int64_t first, int64_t count) const;
};

}  // namespace quintet
