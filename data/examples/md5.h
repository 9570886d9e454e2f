#pragma once
// MD5 (RFC 1321), for names that T5X makes of it. No protection against anyone.

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

#include "runtime/base/check.h"

namespace quintet::data {

/// 32 hexadecimal digits.
inline std::string md5_hex(std::string text) {
  constexpr int kShifts[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
  const uint64_t bits = text.size() * 8;
  text += '\x80';
  while (text.size() % 64 != 56) text += '\0';
  for (int i = 0; i < 8; ++i) text += static_cast<char>(bits >> (8 * i));
  std::array<uint32_t, 4> state{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  for (size_t block = 0; block < text.size(); block += 64) {
    std::array<uint32_t, 16> words{};
    for (size_t i = 0; i < 64; ++i)
      words[i / 4] |= uint32_t{static_cast<uint8_t>(text[block + i])} << (8 * (i % 4));
    auto [a, b, c, d] = state;
    for (uint32_t i = 0; i < 64; ++i) {
      const uint32_t mixes[4] = {(b & c) | (~b & d), (d & b) | (~d & c), b ^ c ^ d, c ^ (b | ~d)};
      const uint32_t places[4] = {i, 5 * i + 1, 3 * i + 5, 7 * i};
      const auto constant =
          static_cast<uint32_t>(std::floor(std::abs(std::sin(i + 1.0)) * 4294967296.0));
      const uint32_t sum = a + mixes[i / 16] + constant + words[places[i / 16] % 16];
      a = d;
      d = c;
      c = b;
      b += std::rotl(sum, kShifts[i / 16][i % 4]);
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
  }
  std::string hex;
  for (uint32_t word : state)
    for (int i = 0; i < 4; ++i) hex += fmt::format("{:02x}", (word >> (8 * i)) & 0xff);
  return hex;
}

}  // namespace quintet::data
