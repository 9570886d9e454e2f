#pragma once
// The variable-length numbers of protocol buffers (LEB128): seven bits a byte, the low ones first.

#include <cstdint>
#include <string>

namespace quintet {

inline void append_varint(std::string& bytes, uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  bytes += static_cast<char>(value);
}

}  // namespace quintet
