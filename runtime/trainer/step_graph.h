#pragma once
// The forward and backward pass of a training step, recorded once (a CUDA graph) and repeated as long
// as the shapes of the batch and the places of the parameters stay: a launch a step instead of some
// hundred. What changes from step to step is read from memory: the batch (step_feeds.h) and the keys of
// dropout and jitter (kernels/step_keys.h). The same kernels run on the same numbers, so results are
// those of a step that is not recorded, bit for bit. On a mesh the collectives are part of it where a comm
// records them (Comm::record); all ranks record or none does. The update is not part of it: few launches,
// whose numbers depend on the gradients' norm.
//
//   StepGraph graph(parameters, work);
//   const auto losses = graph.run(batch, key);   // gradients lie with the parameters

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/memory/placement.h"
#include "runtime/tensor/parameters.h"
#include "runtime/trainer/loss_output.h"

namespace quintet {

class StepGraph {
 public:
  /// Computes the gradients of a batch, with dropout by `key`, and hands over the loss of each
  /// microbatch after its backward pass.
  using Work = std::function<void(const HostArrays& batch, Key key,
                                  const std::function<void(const LossOutput&)>& done)>;
  StepGraph(Parameters& parameters, Work work, bool may_record);
  ~StepGraph();

  /// Runs the work, or launches its recording. A step is recorded when it is like the one before it.
  /// Work that cannot be recorded is run each time; why is said once, on stderr, by one rank.
  /// The losses of the microbatches: of a recording the same tensors each time.
  std::vector<LossOutput> run(const HostArrays& batch, Key key);
  /// Gives a recording's memory back; the next step like the last one is recorded again.
  void forget();
  /// Whether the last step was the launch of a recording.
  bool launched() const { return launched_; }

 private:
  struct Recorded;
  std::vector<LossOutput> run_now(const HostArrays& batch, Key key) const;
  std::string shape_of(const HostArrays& batch) const;
  std::vector<BlockLife> record_into(Recorded& recorded, const HostArrays& batch, Key key);
  void record(const HostArrays& batch, Key key);

  Parameters& parameters_;
  Work work_;
  bool may_record_, launched_ = false;
  std::string shape_;              // of the last step
  std::vector<BlockLife> blocks_;  // of the first step of this shape, then of its recording
  std::optional<MemoryPlacement> placement_;  // of these, once one is recorded
  std::unique_ptr<Recorded> recorded_;
};

}  // namespace quintet
