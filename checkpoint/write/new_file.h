#pragma once
// A file that appears whole under its name or not at all, where making it takes longer than atomic_write_file().
//
//   NewFile file("/models/small.safetensors");   // prepared as /models/.tmp-small.safetensors
//   write(file.prepared());                      // which the writer makes, and syncs
//   file.commit();                               // renamed

#include <filesystem>
#include <optional>

#include "runtime/base/files/folder_lock.h"

namespace quintet {

class NewFile {
 public:
  /// What a killed process left of the same name goes. Throws ExitCode::kUsage if there is something at `target` already or
  /// another process prepares it, ExitCode::kDisk.
  explicit NewFile(std::filesystem::path target);
  /// Removes what was not committed.
  ~NewFile();
  NewFile(const NewFile&) = delete;

  std::filesystem::path prepared() const;
  /// Gives what was prepared its name, durably.
  void commit();

 private:
  std::filesystem::path target_;
  std::optional<FolderLock> lock_;
};

}  // namespace quintet
