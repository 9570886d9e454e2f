#pragma once
// CRC-32C (Castagnoli), as TFRecord files, event files and checkpoints use it. SSE4.2's instruction
// where the processor has it (three streams at once, 20 GB/s or so), else eight tables.
//
//   uint32_t crc = crc32c(bytes);              // of a whole buffer
//   crc = crc32c(more_bytes, crc);             // goes on: equals the CRC of both in a row
//   const uint32_t all = crc32c_concat(crc_a, crc_b, size_of_b);

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace quintet {

/// CRC of `bytes` that continues from `crc`, the CRC of what came before (0: nothing).
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);
inline uint32_t crc32c(std::string_view text, uint32_t crc = 0) {
  return crc32c(std::as_bytes(std::span(text.data(), text.size())), crc);
}

/// The portable path, whatever the processor; for tests.
uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t crc = 0);

/// CRC of A followed by B from the CRCs of both and the size of B in bytes: blocks of a buffer can
/// be summed by several threads.
uint32_t crc32c_concat(uint32_t crc_a, uint32_t crc_b, uint64_t size_b);

/// TFRecord's masked form, which keeps a CRC stored beside its data from being a CRC of itself.
constexpr uint32_t masked_crc32c(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

}  // namespace quintet
