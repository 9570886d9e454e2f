#pragma once
// What the files of a data set hold, in short, file by file: ranks on several hosts compare it,
// each of which may have copies of its own.
//
//   for (const FileFingerprint& file : file_fingerprints(provider.contents(options).files)) ..

#include <cstdint>
#include <string>
#include <vector>

namespace quintet::data {

struct FileFingerprint {
  std::string path;
  int64_t bytes = 0;
  uint32_t crc = 0;      // CRC-32C of all bytes, or of those looked at
  bool sampled = false;  // of the first and last 4,096 bytes and blocks between them
};
/// Of each file. All bytes of files that are together at most 64 MiB, or no longer than their share
/// of that; of others 3 to 64 blocks. Throws kData for a file that cannot be read.
std::vector<FileFingerprint> file_fingerprints(const std::vector<std::string>& files);

}  // namespace quintet::data
