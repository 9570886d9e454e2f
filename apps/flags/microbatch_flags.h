#pragma once
// How the microbatches of a training step share a mesh.
//
//   --reduce_gradients=microbatch|step        when gradients are summed over ranks
//   --reduce_gradients_in=float32|bfloat16    what they travel as
//   --gradient_dtype=float32|bfloat16         what they are kept as until the update
//   --interleave_microbatches                 two take turns, so that one computes while the other waits

#include <string>

#include "runtime/trainer/trainer.h"

namespace CLI {
class App;
}

namespace quintet {

struct MicrobatchFlags {
  std::string reduce_gradients = "microbatch", reduce_gradients_in = "float32",
              gradient_dtype = "float32";
  bool interleave_microbatches = false;
  int64_t microbatches = 1;

  void add_to(CLI::App& app);
  /// --gradient_dtype alone, which add_to() has too.
  void add_gradient_dtype_to(CLI::App& app);
  /// For verbs without trainer.Trainer.num_microbatches.
  void add_microbatches_to(CLI::App& app);
  /// Sets what the flags say; num_microbatches stays. What is about several ranks has no effect on one: a warning says so.
  void apply_to(TrainerOptions& options, int64_t ranks) const;
  /// The same and num_microbatches.
  TrainerOptions options(int64_t ranks) const;
};

}  // namespace quintet
