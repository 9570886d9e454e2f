#pragma once
// A copy of slices in memory that is kept between saves: fresh pages cost more than the copying.

#include <cstddef>
#include <memory>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace quintet {

/// Of a slice's elements. Throws ExitCode::kData for sizes that cannot be.
int64_t bytes_of(const TensorSlice& slice);
/// Room of a slice in a snapshot. Throws ExitCode::kData for sizes that cannot be.
int64_t padded_bytes_of(const TensorSlice& slice);

class Snapshot {
 public:
  /// Copies what the slices point to; earlier copies are overwritten.
  void take(const std::vector<TensorSlice>& slices);
  /// The slices, pointing into the copy.
  const std::vector<TensorSlice>& slices() const { return slices_; }

 private:
  std::vector<TensorSlice> slices_;
  std::unique_ptr<std::byte[]> memory_;
  std::byte* first_ = nullptr;  // on a huge page: its first save waits for far fewer page faults
  size_t capacity_ = 0;
};

}  // namespace quintet
