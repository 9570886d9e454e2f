#pragma once
// Asks to stop a run: SIGINT, SIGTERM and SIGUSR1, or a file named STOP in the model directory.
//
//   StopRequests stop(model_dir);
//   while (step < last && !stop.reason()) train_step();
//
// The first signal only sets a flag, so that the step can be finished and saved; the second ends the
// process at once, as the signal itself would. One object at a time.

#include <filesystem>
#include <optional>
#include <string>

namespace quintet {

/// Whether a signal asked this process to stop.
bool stop_signalled();

class StopRequests {
 public:
  /// Installs the handlers. Empty model_dir: no STOP file is looked for.
  explicit StopRequests(std::filesystem::path model_dir);
  /// Puts the former handlers back.
  ~StopRequests();
  StopRequests(const StopRequests&) = delete;
  StopRequests& operator=(const StopRequests&) = delete;

  /// "SIGTERM", or "the file .../STOP"; nothing when the run should go on. Looks at the file system at
  /// most five times a second.
  std::optional<std::string> reason();
  /// Removes the STOP file, so that the next start does not stop at once.
  void clear_stop_file() const;

 private:
  std::filesystem::path stop_file_;
  double looked_at_ = -1;
  bool file_seen_ = false;
};

}  // namespace quintet
