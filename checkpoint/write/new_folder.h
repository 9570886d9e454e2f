#pragma once
// A folder that appears whole under its name or not at all.
//
//   NewFolder folder("/models/small-hf");       // prepared in /models/.tmp-small-hf
//   write(folder.prepared() / "model.safetensors");
//   folder.commit();                            // synced and renamed

#include <filesystem>
#include <optional>

#include "runtime/base/files/folder_lock.h"

namespace quintet {

class NewFolder {
 public:
  /// What a killed process left of the same name goes. Throws ExitCode::kUsage if there is something at
  /// `target` already other than an empty folder, or another process prepares it, ExitCode::kDisk.
  explicit NewFolder(std::filesystem::path target);
  /// Removes what was not committed.
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;

  std::filesystem::path prepared() const { return prepared_path(target_); }
  /// Where a folder of that name is prepared: for the other hosts that write into it.
  static std::filesystem::path prepared_path(const std::filesystem::path& target);
  /// Makes all that is in it durable, then its name.
  void commit();

 private:
  std::filesystem::path target_;
  std::optional<FolderLock> lock_;
  bool committed_ = false;
};

/// Writes a new file; durable once NewFolder::commit has returned.
void write_new_file(const std::filesystem::path& path, std::string_view text);

}  // namespace quintet
