#pragma once
// What compressed bytes hold, whoever compressed them: never more than the caller allows, so that a few bytes
// cannot fill the memory.
//
//   const Bytes node = decompress(Codec::zstd, stored, 1 << 20, "manifest.ocdbt");

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace quintet {

enum class Codec { none, zstd, zlib, snappy };  // zlib: with zlib's or gzip's header

/// Bytes on the heap that were not touched before they were written.
class Bytes {
 public:
  Bytes() = default;
  explicit Bytes(size_t size)
      : data_(std::make_unique_for_overwrite<std::byte[]>(size)), size_(size) {}
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  std::span<const std::byte> span() const { return {data_.get(), size_}; }

 private:
  std::unique_ptr<std::byte[]> data_;
  size_t size_ = 0;
};

/// All that `stored` holds. Throws ExitCode::kData naming `where` if it is damaged, cut short, followed by
/// something else, or holds more than `limit` bytes.
Bytes decompress(Codec codec, std::span<const std::byte> stored, size_t limit,
                 const std::string& where);

/// The same, of exactly target.size() bytes.
void decompress_to(Codec codec, std::span<const std::byte> stored, std::span<std::byte> target,
                   const std::string& where);

}  // namespace quintet
