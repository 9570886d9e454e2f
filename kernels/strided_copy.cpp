#include "kernels/strided_copy.h"

#include <cstddef>
#include <cstring>

namespace quintet {

void copy_strided_cpu(const StridedCopy& copy) {
  if (copy.bytes == 0) return;
  for (int64_t i = 0; i < copy.counts[0]; ++i)
    for (int64_t j = 0; j < copy.counts[1]; ++j)
      std::memcpy(
          static_cast<std::byte*>(copy.to) + i * copy.to_strides[0] + j * copy.to_strides[1],
          static_cast<const std::byte*>(copy.from) + i * copy.from_strides[0] +
              j * copy.from_strides[1],
          static_cast<size_t>(copy.bytes));
}

}  // namespace quintet
