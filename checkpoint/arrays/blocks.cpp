#include "checkpoint/arrays/blocks.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/check.h"

namespace quintet {

std::vector<int64_t> contiguous_chunk(const std::vector<int64_t>& sizes, int64_t element_bytes,
                                      int64_t target_bytes) {
  QT_ASSERT(!sizes.empty());
  std::vector<int64_t> chunk(sizes.size(), 1);
  int64_t inner = element_bytes;  // bytes of one step along `axis`
  for (size_t axis = sizes.size(); axis-- > 0;) {
    const int64_t most = std::max<int64_t>(1, target_bytes / inner);
    if (sizes[axis] > most) {
      const int64_t parts = (sizes[axis] + most - 1) / most;
      chunk[axis] = (sizes[axis] + parts - 1) / parts;  // even parts: little padding in the last
      return chunk;
    }
    chunk[axis] = sizes[axis];
    inner *= sizes[axis];
  }
  return chunk;
}

std::vector<ChunkPlace> chunk_places(const std::vector<int64_t>& sizes,
                                     const std::vector<int64_t>& chunk) {
  std::vector<ChunkPlace> places;
  std::vector<int64_t> at(sizes.size(), 0);
  for (;;) {
    int64_t elements = 1;
    for (size_t i = 0; i < sizes.size(); ++i) elements *= std::min(chunk[i], sizes[i] - at[i]);
    places.push_back({at, elements});
    size_t axis = sizes.size();
    while (axis > 0 && (at[axis - 1] += chunk[axis - 1]) >= sizes[axis - 1]) at[--axis] = 0;
    if (axis == 0) return places;
  }
}

bool blocks_overlap(const Block& a, const Block& b) {
  for (size_t i = 0; i < a.sizes.size(); ++i)
    if (a.sizes[i] == 0 || b.sizes[i] == 0 || a.origin[i] >= b.origin[i] + b.sizes[i] ||
        b.origin[i] >= a.origin[i] + a.sizes[i])
      return false;
  return true;
}

void copy_overlap(const Block& from, const std::byte* source, const Block& to, std::byte* target,
                  int64_t element_bytes) {
  if (!blocks_overlap(from, to)) return;
  const size_t rank = from.sizes.size();
  if (rank == 0) {
    std::memcpy(target, source, static_cast<size_t>(element_bytes));
    return;
  }
  std::vector<int64_t> low(rank), high(rank);
  for (size_t i = 0; i < rank; ++i) {
    low[i] = std::max(from.origin[i], to.origin[i]);
    high[i] = std::min(from.origin[i] + from.sizes[i], to.origin[i] + to.sizes[i]);
  }
  const auto offset = [&](const Block& block, const std::vector<int64_t>& at) {
    int64_t index = 0;
    for (size_t i = 0; i < rank; ++i) index = index * block.sizes[i] + at[i] - block.origin[i];
    return index * element_bytes;
  };
  const auto run = static_cast<size_t>((high[rank - 1] - low[rank - 1]) * element_bytes);
  std::vector<int64_t> at = low;
  for (;;) {
    std::memcpy(target + offset(to, at), source + offset(from, at), run);
    size_t axis = rank - 1;
    while (axis > 0 && ++at[axis - 1] >= high[axis - 1]) {
      at[axis - 1] = low[axis - 1];
      --axis;
    }
    if (axis == 0) return;
  }
}

}  // namespace quintet
