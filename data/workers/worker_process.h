#pragma once
// A process of the user's own program that answers lines: one line in, one line out, for as long as
// it is wanted.
//
//   WorkerProcess worker({"python3", "my_functions.py"});
//   const std::string answer = worker.ask("{\"example\": {\"text\": \"a\"}}", 60);

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

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

  /// Writes a line and returns the one that it writes back, both without their newline. Throws kData
  /// with how the process ended, or that it took too long, and the last lines of its stderr; after
  /// that the object is of no more use.
  std::string ask(std::string_view line, double seconds);

 private:
  void exchange(std::string& left, double seconds);
  void read_errors();
  [[noreturn]] void fail_with(const std::string& what);
  std::string ended();
  void kill_and_wait();

  std::string name_;
  pid_t process_ = -1;
  int input_ = -1, output_ = -1, errors_ = -1;  // its stdin, stdout and stderr
  std::string answers_;                         // read and not yet returned
  std::string last_errors_;
};

}  // namespace quintet::data
