#pragma once
// The keys under which TensorFlow keeps slices of a tensor.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::tensorflow {

/// A length that stands for the whole axis.
inline constexpr int64_t kWholeAxis = -1;

/// The name and, for each axis, beginning and length, so encoded that keys sort as these do. Source:
/// tensorflow, core/util/saved_tensor_slice_util.cc and core/lib/strings/ordered_code.cc.
std::string slice_key(std::string_view name, const std::vector<int64_t>& starts,
                      const std::vector<int64_t>& lengths);

}  // namespace quintet::tensorflow
