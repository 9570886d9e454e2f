#pragma once
// Blocks of row-major arrays: how a slice is cut into chunks, and copies between overlapping blocks.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace quintet {

/// A chunk shape for an array of `sizes` (rank >= 1, no zero) such that every chunk is contiguous in
/// row-major order: (1, .., 1, r, whole, .., whole), of about `target_bytes`.
std::vector<int64_t> contiguous_chunk(const std::vector<int64_t>& sizes, int64_t element_bytes,
                                      int64_t target_bytes);

/// Chunks in row-major order: coordinates of the first element, and the count of elements that lie
/// inside the array.
struct ChunkPlace {
  std::vector<int64_t> origin;
  int64_t elements = 0;
};
std::vector<ChunkPlace> chunk_places(const std::vector<int64_t>& sizes,
                                     const std::vector<int64_t>& chunk);

/// A block of a larger array that is in memory, row-major and dense.
struct Block {
  std::vector<int64_t> origin, sizes;
};
/// Copies the elements that both blocks hold.
void copy_overlap(const Block& from, const std::byte* source, const Block& to, std::byte* target,
                  int64_t element_bytes);
/// True if they have an element in common.
bool blocks_overlap(const Block& a, const Block& b);

}  // namespace quintet
