#include "checkpoint/bytes/byte_reader.h"

#include <cstring>

#include "runtime/base/check.h"

namespace quintet {

ByteReader::ByteReader(std::span<const std::byte> bytes, std::string where)
    : bytes_(bytes), where_(std::move(where)) {}

std::span<const std::byte> ByteReader::take(uint64_t bytes) {
  if (bytes > left()) refuse(fmt::format("expected {} more bytes, found {}", bytes, left()));
  at_ += bytes;
  return bytes_.subspan(at_ - bytes, bytes);
}

std::string_view ByteReader::text(uint64_t bytes) {
  const auto taken = take(bytes);
  return {reinterpret_cast<const char*>(taken.data()), taken.size()};
}

uint8_t ByteReader::u8() { return static_cast<uint8_t>(take(1)[0]); }

uint32_t ByteReader::u32() {
  uint32_t value = 0;
  std::memcpy(&value, take(sizeof value).data(), sizeof value);
  return value;
}

uint32_t ByteReader::big_endian32() { return __builtin_bswap32(u32()); }

uint64_t ByteReader::u64() {
  uint64_t value = 0;
  std::memcpy(&value, take(sizeof value).data(), sizeof value);
  return value;
}

uint64_t ByteReader::varint(uint64_t limit) {
  uint64_t value = 0;
  for (unsigned shift = 0;; shift += 7) {
    const uint64_t byte = u8();
    // The tenth byte holds the last bit.
    if (shift == 63 && byte > 1) refuse("a number of more than 64 bits");
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  if (value > limit) refuse(fmt::format("the number {}, expected at most {}", value, limit));
  return value;
}

void ByteReader::expect_end() const {
  if (left() > 0) refuse(fmt::format("{} bytes too many", left()));
}

void ByteReader::refuse(const std::string& what) const {
  fail(ExitCode::kData, "{}: byte {}: {}; the file is damaged or cut short", where_, at_, what);
}

}  // namespace quintet
