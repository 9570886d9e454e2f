#pragma once
// Blocks of files, several at a time.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace quintet {

/// work(i) for each i < count, about in this order, by the caller and threads of its own, together as many as
/// OpenMP has here and at most 16: not by OpenMP's, which a process that forks lacks. Throws what the first to
/// fail threw.
void for_each_in_parallel(int64_t count, const std::function<void(int64_t)>& work);

/// CRC-32C of bytes in memory.
uint32_t crc32c_in_parallel(std::span<const std::byte> bytes);

}  // namespace quintet
