#pragma once
// Copies a block between arrays whose elements lie by strides.
//
//   copy_block(from, {1, 8}, to, {4, 1}, {2, 3}, 4);   // two by three float32, from columns to rows

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace quintet {

/// `sizes` elements of `element` bytes each; strides are in elements, 0 repeats one.
void copy_block(const std::byte* from, std::span<const int64_t> from_strides, std::byte* to,
                std::span<const int64_t> to_strides, std::span<const int64_t> sizes,
                int64_t element);

/// Of a dense array: row-major, or column-major with its first axis the closest.
std::vector<int64_t> dense_strides(const std::vector<int64_t>& shape, bool column_major = false);

}  // namespace quintet
