#pragma once
// What every optimizer is to the trainer: state for a set of parameters, one update in place, and
// the state's arrays by T5X's names for checkpoints. Optimizers know plain blocks of memory and
// logical axis names; nothing of tensors, tapes or meshes.
//
//   auto optimizer = adafactor({.logical_factor_rules = standard_logical_factor_rules()});
//   optimizer->init(slots);                                        // zeros
//   const GradientCheck check = check_gradients(slots);            // runtime/optim/gradients.h
//   if (check.all_finite)
//     optimizer->update({.step = step, .learning_rate = schedule(step)}, slots);
//   for (const StateArray& array : optimizer->state())
//     save("state/param_states/" + array.name, array.view);

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "runtime/base/axis.h"
#include "runtime/base/host_array.h"
#include "runtime/base/view.h"
#include "runtime/optim/reducer.h"

namespace quintet {

struct UpdateControl;  // kernels/optimizers/gpu_arrays.h

/// One parameter: float32, row-major. `param` is updated in place; `grad`, float32 or bfloat16, may be
/// overwritten by an update; View::none() as gradient means zero.
struct ParamSlot {
  std::string name;  // T5X's path: "encoder/layers_0/mlp/wi/kernel"
  Axes axes;         // logical, of the global array
  View param;
  View grad = View::none();
  View copy = View::none();              // bfloat16 copy of param on a GPU, which updates write too
  std::vector<MeshAxes> mesh_axes = {};  // by axis: those that shard it; param is a block then
  /// Set to 1 by an update that leaves a number of param or of its state NaN or infinite; in the
  /// device's memory, may be null.
  int32_t* not_finite = nullptr;
  bool has_more_axes_in_t5x = false;  // of ParamInfo

  /// On the CPU, by any thread: what was written is all finite, or not.
  void watch(bool finite) const {
    if (!finite && not_finite != nullptr) std::atomic_ref(*not_finite).store(1);
  }

  /// All mesh axes that shard the array.
  MeshAxes shard_axes() const {
    MeshAxes all;
    for (const MeshAxes& axes_of_dim : mesh_axes)
      all.insert(all.end(), axes_of_dim.begin(), axes_of_dim.end());
    return all;
  }
};

/// An array of the optimizer's state. Lives as long as the optimizer and until the next init.
struct StateArray {
  std::string name;  // below state/param_states/: "<param>/v_row", "0/mu/<param>", "0/count"
  std::vector<std::string> axes;  // logical name of each axis of `view`
  View view;  // float32 or bfloat16; int32, bool or uint32 of the host's counts, marks and keys
  Device* device = &Device::cpu();  // in whose memory it lies
  MeshAxes mesh_axes = {};          // all that shard it: `view` is a block then
};

/// A copy in ordinary memory.
HostArray host_copy(const StateArray& array);

struct UpdateArgs {
  int64_t step = 0;  // updates made before this one: T5X's state/step
  /// For Adafactor. Optax's optimizers have their own learning rate or schedule and ignore it.
  float learning_rate = 0.0f;
  /// Norm of all gradients as given (check_gradients), if known: saves a pass where they are
  /// clipped.
  std::optional<double> gradient_norm{};
  Reducer* reducer = nullptr;  // needed where parameters are sharded
  /// In a GPU's memory, where the host does not know yet (QueuedCheck in gradients.h): the sum of the
  /// squares of all gradients as given, and whether the update is to leave everything as it is.
  const double* squares = nullptr;
  const UpdateControl* control = nullptr;
  int64_t examples =
      0;  // whose clipped gradients the gradients are the sum of (Optimizer::example_clip)
  /// Nobody has written the parameters since this optimizer's last update (Parameters::writes): what it has kept of
  /// them still holds.
  bool params_unwritten = false;
  bool simulates_gpu = false;  // simulate_sums: those of an update on a GPU
};

/// Bytes on a GPU that StateArrays are not.
struct UpdateMemory {
  int64_t kept = 0;     // from init on
  int64_t scratch = 0;  // during an update
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Makes the state of a run that starts: most of it zero. Throws a usage error naming a parameter that
  /// the configuration does not fit.
  virtual void init(std::span<const ParamSlot> params) = 0;
  /// One update. `params` are those of init, in the same order. Gradients must be finite (NaN
  /// policy N1) unless it takes others.
  virtual void update(const UpdateArgs& args, std::span<const ParamSlot> params) = 0;
  /// The last update was skipped on the device: what it counted on the host is as before.
  virtual void take_back() {}
  /// Whether it makes something of gradients that are not finite, as optax.apply_if_finite does: no step is skipped for
  /// them then.
  virtual bool takes_not_finite() const { return false; }
  /// The norm to which the gradient of each example is clipped before they are summed, as optax.contrib.dpsgd has them;
  /// absent: gradients are those of the whole batch.
  virtual std::optional<double> example_clip() const { return std::nullopt; }
  /// What updates of the parameters of init take on a GPU with so many multiprocessors.
  virtual UpdateMemory update_memory(int64_t multiprocessors) const {
    static_cast<void>(multiprocessors);
    return {};
  }
  /// The sums over ranks that an update takes, of values that mean nothing: for counting them in a
  /// simulated step.
  virtual void simulate_sums(const UpdateArgs& args, std::span<const ParamSlot> params) {
    static_cast<void>(args), static_cast<void>(params);
  }
  /// Every array of the state, in a fixed order; writing through the views restores a checkpoint.
  /// Slots that T5X keeps for form's sake (zeros of shape [1]) are left out.
  virtual std::vector<StateArray> state() = 0;
  /// Whether update_part() takes parts, on the CPU: with args.gradient_norm known, the update of a parameter of init
  /// depends on no other's.
  virtual bool updates_apart() const { return false; }
  /// The update of parameters [begin, end) alone, with the bits of update(); of the others neither gradients nor values
  /// are read. The parts of an update come in order and end with the last parameter.
  virtual void update_part(const UpdateArgs& args, std::span<const ParamSlot> params, size_t begin,
                           size_t end) {
    QT_ASSERT(begin == 0 && end == params.size());
    update(args, params);
  }
};

using OptimizerPtr = std::shared_ptr<Optimizer>;

}  // namespace quintet
