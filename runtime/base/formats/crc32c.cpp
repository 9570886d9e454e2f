#include "runtime/base/formats/crc32c.h"

#include <array>
#include <cstring>

namespace quintet {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78u;  // 0x1edc6f41 with its bits reversed

/// a * b modulo the polynomial; both bit-reversed, so bit 31 is x^0 (one step of Horner a bit).
constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int i = 31; i >= 0; --i) {
    product ^= b & (0u - (a >> i & 1));  // without branches, which would be mispredicted
    b = (b >> 1) ^ (kPolynomial & (0u - (b & 1)));
  }
  return product;
}

/// x^(8 * bytes): what a CRC is multiplied by when `bytes` zero bytes follow.
constexpr uint32_t shift_by(uint64_t bytes) {
  uint32_t result = 0x80000000u, power = 0x00800000u;  // 1 and x^8
  for (; bytes != 0; bytes >>= 1) {
    if ((bytes & 1) != 0) result = multiply(result, power);
    power = multiply(power, power);
  }
  return result;
}

/// tables[k][byte]: the CRC of that byte followed by k zero bytes.
constexpr auto make_tables() {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t crc = tables[k - 1][byte];
      tables[k][byte] = (crc >> 8) ^ tables[0][crc & 0xff];
    }
  return tables;
}
constexpr auto kTables = make_tables();

uint64_t load64(const std::byte* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof word);  // little-endian machines only, like all of this code base
  return word;
}

#if defined(__x86_64__)
constexpr uint64_t kLane = 8192;  // bytes of each of the three streams
constexpr uint32_t kShiftOne = shift_by(kLane), kShiftTwo = shift_by(2 * kLane);

/// Inverted CRC (the running form) by the processor's instruction. It has a latency of three cycles
/// and can start every cycle, so three independent streams run side by side.
__attribute__((target("sse4.2"))) uint32_t update_sse42(const std::byte* p, size_t size,
                                                        uint32_t crc) {
  while (size >= 3 * kLane) {
    uint64_t a = crc, b = 0, c = 0;
    for (const std::byte* end = p + kLane; p != end; p += 8) {
      a = __builtin_ia32_crc32di(a, load64(p));
      b = __builtin_ia32_crc32di(b, load64(p + kLane));
      c = __builtin_ia32_crc32di(c, load64(p + 2 * kLane));
    }
    crc = multiply(kShiftTwo, static_cast<uint32_t>(a)) ^
          multiply(kShiftOne, static_cast<uint32_t>(b)) ^ static_cast<uint32_t>(c);
    p += 2 * kLane;
    size -= 3 * kLane;
  }
  uint64_t state = crc;
  for (; size >= 8; size -= 8, p += 8) state = __builtin_ia32_crc32di(state, load64(p));
  crc = static_cast<uint32_t>(state);
  for (; size != 0; --size, ++p)
    crc = __builtin_ia32_crc32qi(crc, std::to_integer<unsigned char>(*p));
  return crc;
}
#endif

}  // namespace

uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t crc) {
  const std::byte* p = bytes.data();
  size_t size = bytes.size();
  crc = ~crc;
  for (; size >= 8; size -= 8, p += 8) {
    const uint64_t word = load64(p) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][word >> (8 * k) & 0xff];
  }
  for (; size != 0; --size, ++p)
    crc = (crc >> 8) ^ kTables[0][(crc ^ std::to_integer<uint32_t>(*p)) & 0xff];
  return ~crc;
}

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return ~update_sse42(bytes.data(), bytes.size(), ~crc);
#endif
  return crc32c_portable(bytes, crc);
}

uint32_t crc32c_concat(uint32_t crc_a, uint32_t crc_b, uint64_t size_b) {
  return multiply(shift_by(size_b), crc_a) ^ crc_b;
}

}  // namespace quintet
