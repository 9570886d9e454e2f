#pragma once
// The entries of a zip archive that are stored without compression, as torch.save writes them.
//
//   const ZipArchive zip(bytes, "pytorch_model.bin");
//   const ZipEntry* pickle = zip.find("archive/data.pkl");

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::huggingface {

/// The checksum of zip archives.
uint32_t crc32_of(std::span<const std::byte> bytes);

struct ZipEntry {
  std::string_view name;
  std::span<const std::byte> bytes;
  uint32_t crc = 0;
};

class ZipArchive {
 public:
  /// Whether the bytes begin as an archive does.
  static bool is_one(std::span<const std::byte> bytes);
  /// Throws ExitCode::kData naming `where` for what is no archive, is cut short, has entries that are
  /// compressed, encrypted, outside of the file or twice there. Zip64 is read.
  ZipArchive(std::span<const std::byte> bytes, std::string where);

  /// By name.
  const std::vector<ZipEntry>& entries() const { return entries_; }
  /// Null: there is none.
  const ZipEntry* find(std::string_view name) const;

 private:
  struct Directory {
    uint64_t count = 0, offset = 0, bytes = 0;
  };
  Directory find_directory() const;
  ZipEntry read_entry(size_t& at) const;
  template <typename T>
  T number(size_t at) const;

  std::span<const std::byte> bytes_;
  std::string where_;
  std::vector<ZipEntry> entries_;
};

}  // namespace quintet::huggingface
