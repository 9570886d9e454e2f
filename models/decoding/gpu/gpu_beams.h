#pragma once
// What a beam search on the current device keeps from step to step (kernels/logits/sample_rows.h).

#include <vector>

#include "kernels/logits/sample_rows.h"
#include "models/decoding/search/token_model.h"
#include "runtime/tensor/tensor.h"

namespace quintet::decoding {

class GpuBeams {
 public:
  explicit GpuBeams(const BeamPlan& plan);
  bool fits(const BeamPlan& plan) const;
  /// Forgets the search before.
  void start(const BeamPlan& plan);
  /// Queues the step that follows `answer`, which names the network's output and where its next
  /// input goes; the same each time, so that it may be recorded.
  void queue(BeamStep answer) const;
  /// Waits. Throws kData for an item whose logits are too few numbers.
  bool all_settled() const;
  BeamTrace trace() const;

 private:
  int64_t items_, beams_, width_, lengths_;
  int32_t eos_id_;
  float penalty_at_end_;
  Tensor forced_, prompt_lengths_, penalties_;
  Tensor states_, steps_, live_, finished_, tokens_, parents_;
};

}  // namespace quintet::decoding
