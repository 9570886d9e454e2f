#pragma once
// The flags by which T5X's and absl's command lines start a job and say where logs go, of train, eval
// and infer. Source: t5x/train.py, t5x/main.py, absl.logging.
//
//   LaunchFlags launch;
//   launch.add_to(cli.app());
//   if (!cli.parse(args)) return 0;
//   launch.check();

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace quintet {

struct LaunchFlags {
  std::string coordinator_address;
  int process_count = 1, process_index = 0;
  bool multiprocess_gpu = false, logtostderr = true, showprefixforinfo = true;
  std::vector<std::string> log_options;  // names of absl.logging's that were given

  void add_to(CLI::App& app);
  /// Says of those given that they have no effect, on the first rank. Throws a usage
  /// error if several processes are asked for and no launcher started this one.
  void check() const;
};

}  // namespace quintet
