#pragma once
// The flags by which T5X's and absl's command lines start a job and say where logs go, of every verb that
// takes a gin file. Source: t5x/train.py, t5x/main.py, absl.app, absl.flags, absl.logging.
//
//   LaunchFlags launch;
//   launch.add_to(cli.app());
//   if (!cli.parse(args) || !launch.check()) return 0;

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace quintet {

struct LaunchFlags {
  std::string coordinator_address;
  int process_count = 1, process_index = 0;
  std::string initialization_timeout;
  bool multiprocess_gpu = false, logtostderr = true, showprefixforinfo = true;
  bool only_check_args = false, dry_run = false;
  std::vector<std::string> log_options;     // names of absl.logging's that were given
  std::vector<std::string> python_options;  // of absl.app's, for Python's debugger and profilers

  void add_to(CLI::App& app);
  /// Of a verb that is one process and waits for no others: --initialization_timeout, too.
  void add_to_one_process(CLI::App& app);
  /// --dry_run of T5X's main.py, of verbs that then print their configuration and end.
  void add_dry_run(CLI::App& app);
  /// --run_mode of T5X's main.py, which may be one of `modes`, in any case.
  void add_run_mode(CLI::App& app, const std::vector<std::string>& modes);
  /// Says of those given that they have no effect, on the first rank. False: only the flags were to be
  /// checked. Throws a usage error if several processes are asked for and no launcher started this one.
  bool check() const;
  /// Whether this is the first rank, as the launcher says, before MPI is started.
  static bool leads();

 private:
  void add_absl_flags(CLI::App& app);
};

}  // namespace quintet
