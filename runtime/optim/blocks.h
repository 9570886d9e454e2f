#pragma once
// Work on many parameters cut into blocks of one size, run by all threads in one parallel region.
// The cut depends on the sizes alone, so sums taken block by block do not depend on the threads.

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace quintet {

/// Elements [begin, end) of array number `array`.
struct ArrayBlock {
  int64_t array, begin, end;
};

/// Blocks of at most `size` elements that cover arrays of these sizes, in order.
inline std::vector<ArrayBlock> cut_into_blocks(const std::vector<int64_t>& elements,
                                               int64_t size = 1 << 15) {
  std::vector<ArrayBlock> blocks;
  for (size_t array = 0; array < elements.size(); ++array)
    for (int64_t begin = 0; begin < elements[array]; begin += size)
      blocks.push_back(
          {static_cast<int64_t>(array), begin, std::min(begin + size, elements[array])});
  return blocks;
}

/// body(index) for every index in [0, count), in parallel unless this is in parallel with other
/// work already; bodies must not throw.
template <class Body>
void for_each_block(size_t count, const Body& body) {
  const auto n = static_cast<int64_t>(count);
#pragma omp parallel for schedule(static) if (n > 1 && omp_in_parallel() == 0)
  for (int64_t i = 0; i < n; ++i) body(static_cast<size_t>(i));
}

}  // namespace quintet
