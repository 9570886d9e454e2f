#pragma once
// What sampling on the current device keeps from step to step (kernels/logits/sample_rows.h).

#include "kernels/logits/sample_rows.h"
#include "models/decoding/search/token_model.h"
#include "runtime/tensor/tensor.h"

namespace quintet::decoding {

class GpuSamples {
 public:
  explicit GpuSamples(const SamplePlan& plan);
  bool fits(const SamplePlan& plan) const;
  /// Forgets the search before.
  void start(const SamplePlan& plan);
  /// Queues the draw from `logits` float32 [rows, vocab] and what follows it; `next` names where the
  /// network's next input goes and where resting rows stand. The same each time, so that it may be
  /// recorded.
  void queue(const float* logits, int64_t vocab, SampleStep next) const;
  /// Waits.
  bool all_ended() const;
  SampleTrace trace() const;

 private:
  int64_t rows_, decodes_, width_, temperature_count_;
  int32_t eos_id_;
  int64_t topk_;
  float topp_;
  bool rescale_log_probs_;
  Tensor temperatures_, allowances_, sequences_, indices_, ended_, running_, log_probs_, keys_;
  Tensor drawn_, drawn_log_probs_;
};

}  // namespace quintet::decoding
