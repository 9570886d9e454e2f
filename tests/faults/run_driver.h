#pragma once
// Runs the driver program under the shim and judges what it left behind.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "runtime/base/formats/json.h"
#include "tests/faults/driver.h"

namespace quintet::testing {

/// A folder in memory where there is one (a sweep syncs thousands of times), removed at the end.
class FaultFolder {
 public:
  FaultFolder() {
    const char* root = std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : "/tmp";
    std::string name = std::string(root) + "/quintet-fault-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp: " + name);
    path_ = name;
  }
  ~FaultFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct Ended {
  int signal = 0;  // 0: it ended by itself
  int code = 0;    // its exit code then
  std::vector<std::string> lines;
  std::string errors;
  /// The newest step it said to have committed; `base` if none.
  int64_t committed(int64_t base) const {
    for (const std::string& line : lines) {
      if (line.starts_with("restored ")) base = std::stoll(line.substr(9));
      if (line.starts_with("saved ")) base = std::stoll(line.substr(6));
      if (line.starts_with("finished ")) base = std::stoll(line.substr(9));
    }
    return base;
  }
};

struct Launch {
  std::filesystem::path model_dir;
  std::string mode = "sync";
  int steps = 2;
  std::string fault = "";          // QT_FAULT; empty: no shim
  std::filesystem::path log = "";  // QT_FAULT_LOG
  bool hold = false;
  std::function<void()> in_child = {};  // between fork and exec
};

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// Starts the driver with stdout and stderr in files beside the model directory; its pid.
inline pid_t start_driver(const Launch& launch) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  const auto into = [&](const char* suffix, int descriptor) {
    const std::string file = launch.model_dir.string() + suffix;
    const int opened = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ::dup2(opened, descriptor);
  };
  into(".out", STDOUT_FILENO);
  into(".err", STDERR_FILENO);
  // The shim comes before that library; HDF5 forgets 264 bytes of a file that cannot be written.
  ::setenv("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0", 1);
  if (!launch.fault.empty()) {
    ::setenv("LD_PRELOAD", QUINTET_FAULT_SHIM, 1);
    ::setenv("QT_FAULT", launch.fault.c_str(), 1);
    ::setenv("QT_FAULT_DIR", launch.model_dir.c_str(), 1);
    if (!launch.log.empty()) ::setenv("QT_FAULT_LOG", launch.log.c_str(), 1);
  }
  if (launch.in_child) launch.in_child();
  const std::string steps = std::to_string(launch.steps);
  ::execl(QUINTET_CHECKPOINT_DRIVER, "driver", launch.model_dir.c_str(), launch.mode.c_str(),
          steps.c_str(), launch.hold ? "hold" : nullptr, nullptr);
  ::_exit(127);
}

inline Ended wait_for_driver(pid_t pid, const Launch& launch) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  Ended ended;
  if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  ended.lines = lines_of(read_file(launch.model_dir.string() + ".out"));
  ended.errors = read_file(launch.model_dir.string() + ".err");
  return ended;
}

inline Ended run_driver(const Launch& launch) {
  return wait_for_driver(start_driver(launch), launch);
}

/// A model directory with the checkpoints 1 and 2, in `folder/name`.
inline std::filesystem::path prepared(const std::filesystem::path& folder,
                                      const std::string& name) {
  const auto pattern = folder / "prepared";
  if (!std::filesystem::exists(pattern)) {
    const Ended ended = run_driver({.model_dir = pattern});
    if (ended.code != 0) throw std::runtime_error("driver: " + ended.errors);
  }
  std::filesystem::remove_all(folder / name);
  std::filesystem::copy(pattern, folder / name, std::filesystem::copy_options::recursive);
  return folder / name;
}

/// What a next start must find: no leftovers, every visible checkpoint whole and with its own step's
/// values, the newest not older than `committed`.
inline void expect_sound(const std::filesystem::path& model_dir, int64_t committed) {
  const FolderLock lock(model_dir);
  std::vector<std::string> warnings;
  CheckpointManager manager(
      lock, {.keep = 2, .warn = [&](const std::string& text) { warnings.push_back(text); }});
  for (const auto& entry : std::filesystem::directory_iterator(model_dir)) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(name == "LOCK" || name == "config.gin" || name.starts_with("checkpoint_"))
        << "left over: " << name;
  }
  for (const int64_t step : manager.steps()) {
    try {
      check_state(read_checkpoint(checkpoint_path(model_dir, step)));
    } catch (const Error& error) {
      ADD_FAILURE() << "visible but damaged: " << error.what();
    }
  }
  ASSERT_TRUE(manager.latest_step().has_value());
  EXPECT_GE(*manager.latest_step(), committed);
}

/// Operations that the shim counts in a run of this mode without any fault.
inline int count_operations(const std::filesystem::path& folder, const std::string& mode) {
  const Launch launch{.model_dir = prepared(folder, "count"),
                      .mode = mode,
                      .fault = "any:999999999=EIO",
                      .log = folder / "count.log"};
  std::filesystem::remove(launch.log);
  const Ended ended = run_driver(launch);
  EXPECT_EQ(ended.code, 0) << ended.errors;
  return static_cast<int>(lines_of(read_file(launch.log)).size());
}

}  // namespace quintet::testing
