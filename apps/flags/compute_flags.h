#pragma once
// --device and --threads, of every verb that computes.
//
//   ComputeFlags compute;
//   compute.add_to(cli.app());
//   if (!cli.parse(args)) return 0;
//   compute.start();

#include <string>

namespace CLI {
class App;
}

namespace quintet {

struct ComputeFlags {
  std::string device = "auto";
  int threads = 0;  // 0: as OMP_NUM_THREADS and the machine say

  void add_to(CLI::App& app);
  /// Opens the device and sets the number of threads, for the rest of the process. Throws what
  /// use_device throws.
  void start() const;
};

}  // namespace quintet
