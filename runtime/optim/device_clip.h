#pragma once
// Clipping by the norm of all gradients on a GPU, where the host does not wait for the norm: what an
// update's kernels read (UpdateControl).
//
//   const UpdateControl* control = clip_.decide(args, params, max_norm);
//   device.kernels().update_adam(arrays, step, use, control, device.stream());

#include "runtime/optim/optimizer.h"

namespace quintet {

class DeviceClip {
 public:
  /// Queues the decision: gradients count min(1, max_norm / norm) times (0: once), and everything stays as
  /// it is where the norm is not finite or args.control says so. Of args.gradient_norm or args.squares, else of the
  /// gradients of `params`, over all ranks. Valid until the next call; null: nothing to read.
  const UpdateControl* decide(const UpdateArgs& args, std::span<const ParamSlot> params,
                              double max_norm);
  /// The sums over ranks of the same, on a device without memory.
  static void simulate(const UpdateArgs& args, std::span<const ParamSlot> params, double max_norm);

 private:
  Buffer control_;
};

}  // namespace quintet
