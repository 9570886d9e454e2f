#pragma once
// Asks to stop a run: a signal of kStopSignals, or a file named STOP in the model directory.
//
//   StopRequests stop(model_dir);
//   while (step < last && !stop.reason()) train_step();
//
// The first signal only sets a flag, so that the step can be finished and saved; the second ends
// the process at once, as the signal itself would. Where mpirun passes on its own, it stands still until the object
// goes, or for 10 minutes (runtime/mpi/launcher.h). SIGHUP and SIGXCPU come in numbers and never
// count as the second; SIGHUP that was ignored when the process began (nohup) stays so. One object
// at a time.

#include <array>
#include <csignal>
#include <filesystem>
#include <optional>
#include <string>

namespace quintet {

inline constexpr std::array kStopSignals = {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGXCPU};

/// From here on signals reach a thread of their own ("signals"), whichever handler they have; the calling
/// thread and those it starts are left alone. Call it before the first other thread.
///
/// oneDNN's float32 products point the stack register into a buffer on the heap when K is large
/// (jit_avx512_common_gemm_f32, jit_avx_gemm_f32): a handler that runs on such a thread overwrites the heap
/// below that buffer.
void start_signal_thread();

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
  /// From here on Ctrl-C stops a command, and the program only where nobody takes it back: it says so while a command
  /// runs, a second one is none, and another signal takes its place.
  void let_interrupts_stop_commands();
  /// While a command runs.
  class Command {
   public:
    explicit Command(StopRequests& stop);
    ~Command();
    Command(const Command&) = delete;
    Command& operator=(const Command&) = delete;
  };
  /// Whether Ctrl-C asked, which is forgotten then.
  bool take_interrupt();
  /// Removes the STOP file, so that the next start does not stop at once.
  void clear_stop_file() const;

 private:
  std::filesystem::path stop_file_;
  double looked_at_ = -1;
  bool file_seen_ = false;
};

}  // namespace quintet
