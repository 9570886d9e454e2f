#pragma once
// What `quintet interactive` may be told.

#include <optional>
#include <string>

#include "apps/flags/compute_flags.h"
#include "apps/flags/result_format.h"

namespace CLI {
class App;
}

namespace quintet {

struct InteractiveFlags {
  std::string model_dir, output_dir, commands;
  ResultFormat format{"text"};
  std::string input, target;  // fields of files
  int64_t batch_size = 8;
  std::optional<int64_t> seed, input_length, target_length, num_examples;
  double learning_rate = 0.001;
  ComputeFlags compute;

  void add_to(CLI::App& app);
};

}  // namespace quintet
