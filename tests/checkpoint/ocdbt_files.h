#pragma once
// Parts of an OCDBT store by hand, and a store in memory.

#include <string>

#include "checkpoint/ocdbt/encoding.h"
#include "checkpoint/ocdbt/files.h"
#include "checkpoint/ocdbt/manifest.h"
#include "runtime/base/check.h"
#include "runtime/base/formats/crc32c.h"

namespace quintet::testing {

inline std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

/// So many bytes of a number, the lowest first.
inline std::string little_endian(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

/// Header, body and checksum.
inline std::string encoded(uint32_t magic, const std::string& body, int compression = 0,
                           int version = 0) {
  std::string bytes = little_endian(__builtin_bswap32(magic), 4);
  bytes += little_endian(4 + 8 + 2 + body.size() + 4, 8);
  bytes += static_cast<char>(version);
  bytes += static_cast<char>(compression);
  bytes += body;
  return bytes + little_endian(crc32c(bytes), 4);
}

/// A table of one file.
inline std::string data_files(const std::string& path) {
  return varint(1) + varint(path.size()) + varint(0) + path;
}

/// A manifest, and one file for all data.
class MemoryStore final : public ocdbt::Files {
 public:
  MemoryStore(std::string manifest, std::string data)
      : manifest_(std::move(manifest)), data_(std::move(data)) {}
  std::span<const std::byte> bytes(const std::string& path) override {
    return std::as_bytes(std::span(path == ocdbt::kManifestName ? manifest_ : data_));
  }
  std::vector<std::string> names() const override { return {ocdbt::kManifestName}; }
  std::string where(const std::string& path) const override { return "memory/" + path; }

 private:
  std::string manifest_, data_;
};

}  // namespace quintet::testing
