#pragma once
// A process of the `quintet` program that sends frames (runtime/base/process/frames.h) to this one and, some, gets them.
//
//   Worker worker({"serve", "--pipe", "--model_dir=/tmp/numbers"});
//   worker.send(1, 0, "/tokenize\n{\"prompt\": \"a\"}");
//   FrameHead head;
//   while (worker.read_head(head, 0.1)) ...

#include <sys/types.h>

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/process/frames.h"

namespace quintet::library {

/// The program beside this library, or along PATH; QUINTET_PROGRAM names another.
std::string program_path();

class Worker {
 public:
  /// Throws kEnvironment if the program cannot be started.
  explicit Worker(std::vector<std::string> arguments);
  /// Ends its input, and after two seconds the process. In a process that was forked since, neither.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// What it says first, a JSON object; empty if it ended well without a word. Throws kEnvironment if it is of another
  /// version than this library.
  std::string greeting();
  /// Whether this process made it, and was not forked from that one.
  bool is_ours() const;
  /// Throws a usage error if not.
  void check_process() const;
  /// False: it has ended.
  bool send(uint64_t request, int32_t status, std::string_view body);
  /// Waits for a frame's head; its body must be read next (a head of no request without body says that none follows).
  /// False when the time is over (negative: never). Throws what the program said when it ended, with the code that it
  /// ended with.
  bool read_head(FrameHead& head, double seconds);
  void read_body(void* to, size_t bytes) { quintet::read_body(output_, to, bytes); }
  /// Its output is over and it ended well.
  bool done() const { return done_; }
  /// No more is sent: it ends soon.
  void end_input();
  /// Ends it and what it has started, at once; while another thread reads, too.
  void kill();

 private:
  void read_errors();
  void pass_on_errors();
  void end();
  void wait_for_end(double seconds);

  const pid_t owner_;
  const std::string program_;
  std::atomic<pid_t> process_ = -1;
  int input_ = -1, output_ = -1, errors_ = -1;
  std::string said_;           // on stderr, not passed on: from the line of the error on
  std::optional<int> status_;  // of waitpid, unless another part of this program has got it
  bool finished_ = false;      // it has said that no frame will follow
  bool done_ = false;
};

}  // namespace quintet::library
