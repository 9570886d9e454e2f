#include "checkpoint/ocdbt/files.h"

#include "runtime/base/files/posix_file.h"

namespace quintet::ocdbt {

std::span<const std::byte> FolderFiles::bytes(const std::string& path) {
  std::unique_ptr<MappedFile>& file = mapped_[path];
  if (!file) file = std::make_unique<MappedFile>(folder_ / path);
  return file->bytes();
}

std::vector<std::string> FolderFiles::names() const { return names_in(folder_); }

std::string FolderFiles::where(const std::string& path) const { return (folder_ / path).string(); }

void FolderFiles::release(std::span<const std::byte> part) const {
  for (const auto& [path, file] : mapped_)
    if (file) file->release(part);
}

}  // namespace quintet::ocdbt
