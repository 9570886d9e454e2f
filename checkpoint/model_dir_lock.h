#pragma once
// One training run a model directory (fault row C9).
//
//   ModelDirLock lock("/runs/small");   // throws if another run is there
//
// The lock is an advisory lock on the file LOCK, so it ends with the process however that dies; the
// text in the file (host, pid, start time) is for the message and for file systems without locks.

#include <filesystem>
#include <string>

namespace quintet {

class ModelDirLock {
 public:
  /// Creates the folder if needed, checks that it can be written to (ExitCode::kDisk), and takes the
  /// lock. Throws ExitCode::kUsage naming the holder's host, pid and start if a live run has it.
  explicit ModelDirLock(std::filesystem::path model_dir);
  /// The lock that another rank of the same run holds.
  static ModelDirLock held_by_leader(std::filesystem::path model_dir);
  ~ModelDirLock();
  ModelDirLock(ModelDirLock&& other) noexcept;
  ModelDirLock(const ModelDirLock&) = delete;
  ModelDirLock& operator=(const ModelDirLock&) = delete;

  const std::filesystem::path& model_dir() const { return model_dir_; }
  /// What the file said of a run that died without giving the lock back; empty: there was none.
  const std::string& taken_over_from() const { return taken_over_from_; }

 private:
  ModelDirLock() = default;
  std::filesystem::path model_dir_;
  std::string taken_over_from_;
  int descriptor_ = -1;
};

}  // namespace quintet
