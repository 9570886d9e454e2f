#pragma once
// The checksum that HDF5 stores behind each chunk (H5Z_FILTER_FLETCHER32), at the speed of memory: the library's
// own takes a word at a time.

#include <cstddef>
#include <cstdint>
#include <span>

namespace quintet {

/// Of big-endian 16-bit words; an odd last byte is the upper half of one.
uint32_t fletcher32(std::span<const std::byte> bytes);

}  // namespace quintet
