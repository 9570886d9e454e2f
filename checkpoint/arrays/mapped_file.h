#pragma once
// A file's bytes in memory without a copy: the system reads pages as they are touched and may drop them
// again at any time.
//
//   const MappedFile file("model.safetensors");
//   use(file.bytes());
//   file.release(part);   // its pages no longer count as this process's memory

#include <cstddef>
#include <filesystem>
#include <span>

namespace quintet {

class MappedFile {
 public:
  /// An ordinary file; links are followed. Throws ExitCode::kData if it is not there, no file or
  /// Git LFS's pointer to one, ExitCode::kDisk if it cannot be mapped.
  explicit MappedFile(std::filesystem::path path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  /// Gives back the memory of pages inside `part`, which may be read again. Parts of other files are
  /// left alone.
  void release(std::span<const std::byte> part) const;

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

}  // namespace quintet
