#pragma once
// One run a folder: a model directory (fault row C9), a cache, an output of `quintet infer`.
//
//   FolderLock lock("/runs/small");   // throws if another run is there
//
// The lock is an advisory lock on a file, so it ends with the process however that dies; the text in
// the file (host, pid, start time) is for the message and for file systems without locks.

#include <filesystem>
#include <string>

namespace quintet {

class FolderLock {
 public:
  static constexpr const char* kName = "LOCK";
  /// Creates the folder if needed, checks that it can be written to (ExitCode::kDisk), and takes the
  /// lock on the file `name` in it. Throws ExitCode::kUsage naming the holder's host, pid and start if
  /// a live run has it.
  explicit FolderLock(std::filesystem::path folder, std::string name = kName);
  /// The lock that another rank of the same run holds.
  static FolderLock held_by_leader(std::filesystem::path folder);
  /// Whether a run has the folder's lock, or died with it. Only looks, so that a run may start meanwhile.
  static bool is_there(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept;
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  const std::filesystem::path& folder() const { return folder_; }
  /// What the file said of a run that died without giving the lock back; empty: there was none.
  const std::string& taken_over_from() const { return taken_over_from_; }

 private:
  FolderLock() = default;
  std::filesystem::path folder_;
  std::string name_, taken_over_from_;
  int descriptor_ = -1;
};

}  // namespace quintet
