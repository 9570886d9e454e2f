#include "checkpoint/arrays/copy_block.h"

#include <cstring>

namespace quintet {

void copy_block(const std::byte* from, std::span<const int64_t> from_strides, std::byte* to,
                std::span<const int64_t> to_strides, std::span<const int64_t> sizes,
                int64_t element) {
  if (sizes.empty()) {
    std::memcpy(to, from, static_cast<size_t>(element));
  } else if (sizes.size() == 1 && from_strides[0] == 1 && to_strides[0] == 1) {
    std::memcpy(to, from, static_cast<size_t>(sizes[0] * element));
  } else {
    for (int64_t i = 0; i < sizes[0]; ++i)
      copy_block(from + i * from_strides[0] * element, from_strides.subspan(1),
                 to + i * to_strides[0] * element, to_strides.subspan(1), sizes.subspan(1),
                 element);
  }
}

std::vector<int64_t> dense_strides(const std::vector<int64_t>& shape, bool column_major) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    const size_t axis = column_major ? i : shape.size() - 1 - i;
    strides[axis] = stride;
    stride *= shape[axis];
  }
  return strides;
}

}  // namespace quintet
