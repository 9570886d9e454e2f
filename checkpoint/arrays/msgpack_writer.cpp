#include "checkpoint/arrays/msgpack_writer.h"

#include <array>

#include "runtime/base/check.h"

namespace quintet {

void MsgpackWriter::big_endian(uint64_t value, int bytes) {
  for (int i = bytes - 1; i >= 0; --i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
}

/// A size in the marker itself if it is below the limit, else behind the first of the markers `wide` (of
/// sizes in 1, 2 and 4 bytes; 0: there is none) that holds it.
void MsgpackWriter::head(uint8_t small, size_t small_limit, std::span<const uint8_t> wide,
                         size_t size) {
  if (size < small_limit) return bytes_.push_back(static_cast<char>(small | size));
  for (size_t i = 0; i < wide.size(); ++i) {
    const int bytes = 1 << i;
    if (wide[i] == 0 || size >> (8 * bytes) != 0) continue;
    bytes_.push_back(static_cast<char>(wide[i]));
    return big_endian(size, bytes);
  }
  throw Bug("msgpack: a size of 4 GiB or more");
}

void MsgpackWriter::dict(size_t members) {
  head(0x80, 16, std::array<uint8_t, 3>{0, 0xde, 0xdf}, members);
}

void MsgpackWriter::text(std::string_view value) {
  head(0xa0, 32, std::array<uint8_t, 3>{0xd9, 0xda, 0xdb}, value.size());
  bytes_ += value;
}

void MsgpackWriter::integer(int64_t value) {
  QT_ASSERT(value >= 0);
  if (value >> 32 != 0) {
    bytes_.push_back(static_cast<char>(0xcf));
    return big_endian(static_cast<uint64_t>(value), 8);
  }
  head(0, 128, std::array<uint8_t, 3>{0xcc, 0xcd, 0xce}, static_cast<size_t>(value));
}

void MsgpackWriter::integers(const std::vector<int64_t>& values) {
  head(0x90, 16, std::array<uint8_t, 3>{0, 0xdc, 0xdd}, values.size());
  for (const int64_t value : values) integer(value);
}

void MsgpackWriter::binary(std::span<const std::byte> bytes) {
  head(0, 0, std::array<uint8_t, 3>{0xc4, 0xc5, 0xc6}, bytes.size());
  bytes_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

void MsgpackWriter::array(DType dtype, const std::vector<int64_t>& shape,
                          std::span<const std::byte> bytes) {
  MsgpackWriter inside;
  inside.bytes_.push_back(static_cast<char>(0x93));  // a list of three
  inside.integers(shape);
  inside.text(dtype == DType::boolean ? "bool" : name_of(dtype));
  inside.binary(bytes);
  const size_t size = inside.bytes_.size();
  constexpr std::pair<size_t, uint8_t> kFixed[] = {
      {1, 0xd4}, {2, 0xd5}, {4, 0xd6}, {8, 0xd7}, {16, 0xd8}};
  bool is_fixed = false;
  for (const auto& [fixed, marker] : kFixed)
    if (size == fixed) {
      bytes_.push_back(static_cast<char>(marker));
      is_fixed = true;
    }
  if (!is_fixed) head(0, 0, std::array<uint8_t, 3>{0xc7, 0xc8, 0xc9}, size);
  bytes_.push_back(1);  // an ndarray
  bytes_ += inside.bytes_;
}

}  // namespace quintet
