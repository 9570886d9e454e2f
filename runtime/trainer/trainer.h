#pragma once
// One training step: microbatches, gradients, the check that they are finite, the update, metrics.
// On a GPU all of it is queued before the host waits for anything.
// Knows models as a loss function over rows of a batch.
//
//   Trainer trainer(loss, model.parameters(), optimizer, {.learning_rate = schedule}, key);
//   while (trainer.step() < total) { const StepResult r = trainer.train(batch); ... }

#include <functional>

#include "runtime/base/execution_context.h"
#include "runtime/execution/gather_cache.h"
#include "runtime/execution/gradient_buckets.h"
#include "runtime/metrics/metric.h"
#include "runtime/optim/gradients.h"
#include "runtime/optim/optimizer.h"
#include "runtime/optim/schedules.h"
#include "runtime/optim/state_buffer.h"
#include "runtime/tensor/parameters.h"
#include "runtime/trainer/fp8_state.h"
#include "runtime/trainer/step_graph.h"

namespace quintet {

/// Loss of rows [begin, end) of this rank's rows of a batch; dropout follows `key` and the rows' places
/// in the batch.
using LossFunction =
    std::function<LossOutput(const HostArrays& batch, int64_t begin, int64_t end, Key key)>;

/// When gradients are summed over ranks: after every microbatch, in T5X's order, or once a step, the sum of
/// a rank's own, which takes room for whole gradients.
enum class GradientReduction { microbatch, step };

struct TrainerOptions {
  /// Must divide the rows of a rank; as many as those where the optimizer clips the gradient of each example, which is a
  /// row then, packed or not.
  int64_t num_microbatches = 1;
  GradientReduction reduction = GradientReduction::microbatch;
  /// What sums of gradients over ranks travel as: float32, or bfloat16 for half the bytes.
  DType reduction_dtype = DType::f32;
  /// What gradients of parameters are kept as until the update: float32, or bfloat16, which takes 2 bytes fewer a
  /// parameter. Each result that is added to one, mostly one a microbatch, is computed in float32 and the sum rounded.
  DType gradient_dtype = DType::f32;
  /// Two microbatches at a time take turns, so that one computes while the other waits for ranks; the sum
  /// of their gradients is reduced. Needs an even number of them.
  bool interleave = false;
  /// Dropout masks are T5X's; the loss function does its part (Context::t5x_dropout). With microbatches they follow
  /// their number: T5X counts each one's rows from 0 and gives all of a step one key.
  bool t5x_dropout = false;
  /// Losses are those of a model's loss_fn, or sums with them, and nothing scales them: the gradient of the
  /// logits' matrix, which is made with the loss, is then added to that of earlier microbatches in its product.
  bool loss_is_total = false;
  Schedule learning_rate;  // of T5X's optimizers; Optax's have their own and it is only logged
  /// T5X's MoeTrainer: gradients of parameters whose name matches are multiplied by this number.
  std::string scaled_gradients{};  // a regular expression for the beginning of a name; "": none
  double gradient_scale = 1;
  int64_t gather_ahead_bytes = GatherCache::kAheadBytes;  // of sharded parameters
  bool weight_metrics = false;     // T5X's WeightMetricsComputer: norms of every parameter
  bool step_graph = true;          // on a GPU, gradients of like batches are recorded
  Fp8Recipe fp8 = {};              // of layers that models/fp8.h has marked
  bool optimizer_offload = false;  // of a GPU: the optimizer's state and work are the host's
};

/// Whether the optimizer has the masters of parameters, too, in the host's memory: those of ranks are gathered from device
/// to device. Whoever makes the parameters asks for it first (Parameters::keep_masters_on_host).
bool offloads_masters(const TrainerOptions& options);

struct StepResult {
  Metrics metrics;
  bool skipped = false;   // a gradient was not finite: parameters are as before (policy N1)
  std::string first_bad;  // the first such parameter
  /// The first parameter that an update before this step left with a number, its own or of its
  /// optimizer state, that is NaN or infinite: no update mends it. On a mesh, of this rank's blocks.
  std::string ruined;
};

class Trainer {
 public:
  /// Makes fresh optimizer state. Step s draws dropout masks from fold_in(key, s). Steps run on the
  /// device and the mesh that are current here, whatever others are when they are taken.
  Trainer(LossFunction loss, Parameters& parameters, OptimizerPtr optimizer, TrainerOptions options,
          Key key);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// One step on a batch of int32 [rows, length] features: on a mesh, this rank's rows (batch_rows.h).
  /// A skipped step counts as a step, not as an update. Throws a usage error if num_microbatches does
  /// not divide the rows.
  StepResult train(const HostArrays& batch);

  /// The first parameter whose gradient of this batch, taken at the parameters as they are, is not
  /// finite; empty: none, training can go on from them. Changes nothing; all ranks call it.
  std::string first_bad_gradient(const HostArrays& batch);

  /// Batches seen; the next batch is number step().
  int64_t step() const { return step_; }

  /// Arrays a checkpoint needs: "target/<parameter>", "state/param_states/..." and those of Fp8State.
  /// The views stay valid until the next step; writing through them restores, then call restored().
  std::vector<StateArray> state();
  /// Takes `step` and the number of skipped updates over after the views of state() were written.
  void restored(int64_t step, int64_t skipped);
  /// The first parameter of which updates so far have left a number, its own or of its optimizer state,
  /// that is not finite; of this rank's blocks. Empty: none.
  std::string first_ruined() const;
  int64_t skipped_updates() const { return skipped_; }
  /// Makes room for other work than steps, evaluation for one: a recorded step keeps its memory.
  void forget_graph() { graph_.forget(); }
  const GatherCache& gather_cache() const { return gather_cache_; }
  /// Whether the last step's gradients came from a recording (runtime/trainer/step_graph.h).
  bool launched_graph() const { return graph_.launched(); }

 private:
  ExecutionContext context();  // of a step: the thread's, with what is this trainer's own
  std::vector<LossOutput> take_gradients(const HostArrays& batch);
  GradientCheck update_if_finite(UpdateArgs args, const GradientCheckOptions& options,
                                 Metrics& weights);
  QueuedCheck queue_update(UpdateArgs args, const GradientCheckOptions& options);
  void update(UpdateArgs args, std::span<const ParamSlot> params);
  void drop_gradients();
  int64_t gradient_bytes() const;
  GradientDTypes gradient_dtypes() const;
  void compute_gradients(const HostArrays& batch, Key key,
                         const std::function<void(const LossOutput&)>& done);
  void sum_clipped_gradients(const HostArrays& batch, Key key, double clip,
                             const std::function<void(const LossOutput&)>& done);
  void scale_gradients();
  std::vector<ParamSlot> slots() const;

  LossFunction loss_;
  Parameters& parameters_;
  OptimizerPtr optimizer_;
  TrainerOptions options_;
  Key key_;
  Device& device_;
  const Sharding* sharding_;
  ParameterLayers layers_;
  GatherCache gather_cache_;
  StepGraph graph_;
  Fp8State fp8_;
  StateBuffer marks_;  // ParamSlot::not_finite of the parameters, in their order
  int64_t step_ = 0, skipped_ = 0;
  /// Parameters::writes() of it; -1: none yet, or views that may be written were given away since.
  int64_t last_update_ = -1;
};

}  // namespace quintet
