#pragma once
// Goes through bytes of another program's file, front to back; what does not fit is an error that names the
// file and the byte.
//
//   ByteReader reader(bytes, "manifest.ocdbt");
//   const uint64_t count = reader.varint();

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace quintet {

class ByteReader {
 public:
  /// `bytes` must outlive this. `where` stands before every message.
  ByteReader(std::span<const std::byte> bytes, std::string where);

  size_t position() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

  uint8_t u8();
  uint32_t big_endian32();
  uint32_t u32();  // little endian, as the next
  uint64_t u64();
  /// Seven bits a byte, the lowest first; at most `limit`.
  uint64_t varint(uint64_t limit = UINT64_MAX);
  std::span<const std::byte> take(uint64_t bytes);
  std::string_view text(uint64_t bytes);

  /// Throws unless everything has been read.
  void expect_end() const;
  /// Throws ExitCode::kData: "WHERE: byte N: WHAT; the file is damaged or of another kind".
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  std::span<const std::byte> bytes_;
  std::string where_;
  size_t at_ = 0;
};

}  // namespace quintet
