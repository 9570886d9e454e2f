#pragma once
// Numbers that are NaN or infinite, counted: a run saves none, and a checkpoint is asked for them.

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "checkpoint/checkpoint.h"

namespace quintet {

/// How many numbers of tensors are not finite; tensors that have none are not in it.
using NotFinite = std::map<std::string, int64_t>;

/// Of little-endian elements of `dtype`; integers are all finite.
int64_t count_not_finite(DType dtype, std::span<const std::byte> bytes);
/// Of blocks in ordinary memory, on all threads.
NotFinite count_not_finite(const std::vector<TensorSlice>& slices);

/// "target/x (3 values) and 4 other tensors hold values that are not finite"; empty if none does.
std::string describe(const NotFinite& counts);

}  // namespace quintet
