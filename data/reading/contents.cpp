#include "data/reading/contents.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "runtime/base/check.h"
#include "runtime/base/formats/crc32c.h"

namespace quintet::data {

void Contents::add(Contents other) {
  examples += other.examples;
  files.insert(files.end(), std::make_move_iterator(other.files.begin()),
               std::make_move_iterator(other.files.end()));
}

std::string fingerprint(const std::vector<std::string>& files) {
  constexpr int64_t kBlocks = 4096, kBlockBytes = 4096, kLeast = 3, kMost = 64;
  const int64_t blocks =
      std::clamp(kBlocks / std::max<int64_t>(1, static_cast<int64_t>(files.size())), kLeast, kMost);
  uint32_t names = 0, contents = 0;
  std::string block;
  for (const std::string& path : files) {
    std::ifstream in(path, std::ios::binary | std::ios::ate);
    QT_CHECK_AS(ExitCode::kData, in.good(), "{}: cannot read it to take its fingerprint", path);
    const auto size = static_cast<int64_t>(in.tellg());
    names = crc32c(fmt::format("{} {}\n", std::filesystem::path(path).filename().string(), size),
                   names);
    const int64_t last = std::max<int64_t>(0, size - kBlockBytes);
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t offset = last * i / (blocks - 1);
      block.resize(static_cast<size_t>(std::min(kBlockBytes, size - offset)));
      in.seekg(offset);
      in.read(block.data(), static_cast<std::streamsize>(block.size()));
      QT_CHECK_AS(ExitCode::kData, in.good() || block.empty(),
                  "{}: cannot read it to take its fingerprint", path);
      contents = crc32c(block, contents);
      if (last == 0) break;  // one block is the whole file
    }
  }
  return fmt::format("{:08x}{:08x}", names, contents);
}

}  // namespace quintet::data
