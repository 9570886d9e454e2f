#pragma once
// A process of the user's own program that answers lines: one line in, one line out, for as long as
// it is wanted. Bytes may follow either line.
//
//   WorkerProcess worker({"python3", "my_functions.py"});
//   const std::string answer = worker.ask("{\"example\": {\"text\": \"a\"}}", 60);

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/clock.h"

namespace quintet::data {

/// What messages call the processes of a command: "worker process 'python3 my_functions.py'".
std::string worker_name(const std::vector<std::string>& command);

class WorkerProcess {
 public:
  /// Starts the program, which PATH finds, without a shell; what it writes to stderr goes to ours.
  /// Throws kEnvironment naming the command if it cannot be started.
  explicit WorkerProcess(const std::vector<std::string>& command);
  /// Ends its input, and after two seconds the process.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  /// Writes a line and what follows it, and returns the line that it writes back, without the
  /// newline. Throws kData with how the process ended, or that it took too long, and the last lines
  /// of its stderr; after that the object is of no more use.
  std::string ask(std::string_view line, std::string_view following, double seconds);
  /// The next `size` bytes after that line, within the same time. Throws as `ask` does.
  std::string read_bytes(int64_t size);
  /// Throws as `ask` does if it has written more than was read.
  void check_all_read();
  /// Ends the process and throws kData: `what` it did, and the last lines of its stderr.
  [[noreturn]] void fail_with(const std::string& what);
  bool ended() const { return process_ <= 0; }
  /// "its stderr: ...", for messages.
  std::string last_errors();

 private:
  void exchange_until(const std::function<bool()>& done);
  void exchange(double seconds);
  void read_errors();
  std::string how_it_ended();
  void kill_and_wait();

  std::string name_;
  pid_t process_ = -1;
  int input_ = -1, output_ = -1, errors_ = -1;  // its stdin, stdout and stderr
  std::string unsent_;                          // of the request
  std::string answers_;                         // read and not yet returned
  Clock::time_point began_;                     // when the request was made
  double seconds_ = 0;                          // that it may take
  std::string last_errors_;
};

}  // namespace quintet::data
