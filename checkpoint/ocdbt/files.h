#pragma once
// The files of a folder that holds an OCDBT store: mapped ones of a disk, or bytes in memory in tests.

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/arrays/mapped_file.h"

namespace quintet::ocdbt {

class Files {
 public:
  virtual ~Files() = default;
  /// Of the file of that path below the folder, for as long as this lives. Throws ExitCode::kData if it is
  /// not there.
  virtual std::span<const std::byte> bytes(const std::string& path) = 0;
  /// Names in the folder itself.
  virtual std::vector<std::string> names() const = 0;
  /// As it stands in messages.
  virtual std::string where(const std::string& path) const = 0;
  /// Gives back the memory of pages that were read.
  virtual void release(std::span<const std::byte>) const {}
};

class FolderFiles final : public Files {
 public:
  explicit FolderFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::span<const std::byte> bytes(const std::string& path) override;
  std::vector<std::string> names() const override;
  std::string where(const std::string& path) const override;
  void release(std::span<const std::byte> part) const override;

 private:
  std::filesystem::path folder_;
  std::map<std::string, std::unique_ptr<MappedFile>> mapped_;
};

}  // namespace quintet::ocdbt
