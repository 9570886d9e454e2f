#pragma once
// --num_partitions, of verbs whose ranks share examples: how many ranks hold a model together.

#include "apps/flags/command_line.h"
#include "runtime/gin/command_line.h"

namespace quintet {

struct PartitionsFlag {
  int64_t count = 1;

  void add_to(CLI::App& app) {
    app.add_option("--num_partitions", count,
                   "ranks that hold the model together (tensor parallelism, on one host); such "
                   "groups share "
                   "the examples")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
        ->group("Under mpirun or srun");
  }
  /// Over what gin files say.
  void bind(gin::CommandLine& gin_line) const {
    if (count > 1)
      gin_line.bindings.push_back(
          fmt::format("partitioning.PjitPartitioner.num_partitions = {}", count));
  }
};

}  // namespace quintet
