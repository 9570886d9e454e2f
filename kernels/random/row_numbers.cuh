#pragma once
// Where a block's elements lie in the whole array: random numbers follow the latter, however it is sharded.
//
//   const RowNumbers numbers(view);
//   const uint32_t bits = threefry_bits(key, numbers.first(row) + column);

#include "kernels/simt/simt.cuh"
#include "runtime/base/view.h"

namespace quintet::QT_GPU {

/// Numbers of a block's elements in the whole array, row by row of the last axis.
struct RowNumbers {
  int32_t rank = 0;
  bool shared = false;    // axis rank - 2 counts as one
  bool unsharded = true;  // the block is the global array
  int64_t sizes[kMaxRank]{}, origin[kMaxRank]{}, global[kMaxRank]{};

  RowNumbers() = default;
  explicit RowNumbers(const View& x, bool rows_share = false) : rank(x.rank), shared(rows_share) {
    for (int i = 0; i < x.rank; ++i) {
      const auto a = static_cast<size_t>(i);
      sizes[i] = x.sizes[a];
      origin[i] = x.origin[a];
      global[i] = x.global[a];
      unsharded = unsharded && x.sizes[a] == x.global[a];
    }
  }

  /// Number of the first element of local row `row` (leading axes flattened).
  __device__ uint64_t first(int64_t row) const {
    int64_t number = rank == 0 ? 0 : origin[rank - 1], stride = rank == 0 ? 1 : global[rank - 1];
    for (int axis = rank - 2; axis >= 0; --axis) {
      const int64_t place = row % sizes[axis];
      row /= sizes[axis];
      if (shared && axis == rank - 2) continue;
      number += (origin[axis] + place) * stride;
      stride *= global[axis];
    }
    return static_cast<uint64_t>(number);
  }
};

}  // namespace quintet::QT_GPU
