#include "data/reading/file_fingerprints.h"

#include <algorithm>
#include <fstream>

#include "runtime/base/check.h"
#include "runtime/base/formats/crc32c.h"

namespace quintet::data {
namespace {

constexpr int64_t kBlockBytes = 4096;

class FileParts {
 public:
  explicit FileParts(const std::string& path)
      : path_(path), in_(path, std::ios::binary | std::ios::ate) {
    QT_CHECK_AS(ExitCode::kData, in_.good(), "{}: cannot read it to take its fingerprint", path);
    bytes_ = static_cast<int64_t>(in_.tellg());
  }
  int64_t bytes() const { return bytes_; }
  uint32_t crc_of_all() {
    constexpr int64_t kPiece = 1 << 20;
    for (int64_t offset = 0; offset < bytes_; offset += kPiece) add(offset, kPiece);
    return crc_;
  }
  /// Of blocks spread evenly from the first bytes to the last.
  uint32_t crc_of_blocks(int64_t blocks) {
    const int64_t last = std::max<int64_t>(0, bytes_ - kBlockBytes);
    for (int64_t i = 0; i < blocks; ++i) add(last * i / (blocks - 1), kBlockBytes);
    return crc_;
  }

 private:
  void add(int64_t offset, int64_t bytes) {
    part_.resize(static_cast<size_t>(std::min(bytes, bytes_ - offset)));
    in_.seekg(offset);
    in_.read(part_.data(), static_cast<std::streamsize>(part_.size()));
    QT_CHECK_AS(ExitCode::kData, in_.good(), "{}: cannot read it to take its fingerprint", path_);
    crc_ = crc32c(part_, crc_);
  }

  const std::string& path_;
  std::ifstream in_;
  int64_t bytes_ = 0;
  uint32_t crc_ = 0;
  std::string part_;
};

}  // namespace

std::vector<FileFingerprint> file_fingerprints(const std::vector<std::string>& files) {
  constexpr int64_t kReadWhole = int64_t{1} << 26, kBlocks = 4096, kLeast = 3, kMost = 64;
  const int64_t count = std::max<int64_t>(1, std::ssize(files));
  std::vector<FileFingerprint> all;
  int64_t total = 0;
  for (const std::string& path : files) {
    all.push_back({path, FileParts(path).bytes()});
    total += all.back().bytes;
  }
  for (FileFingerprint& one : all) {
    one.sampled = total > kReadWhole && one.bytes > kReadWhole / count;
    FileParts file(one.path);
    one.crc = one.sampled ? file.crc_of_blocks(std::clamp(kBlocks / count, kLeast, kMost))
                          : file.crc_of_all();
  }
  return all;
}

}  // namespace quintet::data
