#pragma once
// A file of examples, readable at any place. *.gz and *.zst are decompressed once, into a file
// without a name in $TMPDIR, so that memory stays small and any place can be reached.
//
//   InputFile file("part-0.txt.gz");
//   const size_t got = file.read(block, sizeof block, offset);

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace quintet::data {

class InputFile {
 public:
  /// Of those in which it is read from end to end.
  static constexpr size_t kBlockBytes = size_t{1} << 20;
  /// Throws kData: missing, a folder, unreadable, damaged compression; kDisk: no space to decompress.
  explicit InputFile(std::string path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  /// Bytes of its (decompressed) contents when it was opened.
  int64_t size() const { return size_; }
  bool is_compressed() const { return compressed_; }
  /// Bytes read, fewer than asked for only at the end of the file.
  size_t read(char* out, size_t bytes, int64_t offset) const;
  /// All of them; throws kData if the file has become shorter.
  void read_exactly(char* out, size_t bytes, int64_t offset) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
  bool compressed_ = false;
};

/// The number of the line that begins at a place, from 1.
int64_t line_of(const InputFile& file, int64_t begin);

/// Files that glob patterns match, in the order of patterns and of names. Throws kData for a
/// pattern that matches nothing.
std::vector<std::string> expand_patterns(const std::vector<std::string>& patterns);

}  // namespace quintet::data
