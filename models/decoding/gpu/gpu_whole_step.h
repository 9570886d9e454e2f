#pragma once
// A decoder's step of few rows as one kernel (kernels/decode_step).

#include "kernels/decode_step/decode_step.h"
#include "models/decoding/gpu/gpu_weights.h"

namespace quintet::decoding {

class WholeStep {
 public:
  /// `step`: rows, caches, what is read of them and where logits go, the same at every step.
  WholeStep(const GpuWeights& weights, DecodeStep step);
  /// Whether one kernel takes the step: few rows, one rank that has the network in the dtype it computes in,
  /// dense MLPs, and sizes as decode_step_gpu.h asks for. Else the kernels of gpu_layers.h do.
  explicit operator bool() const { return !workspace_.absent(); }
  /// Queues all layers over x [rows, embed], where their output is then. Returns whether it leaves the logits, too,
  /// which it does where they have a matrix of their own.
  bool queue(const Tensor& x) const;

 private:
  DecodeStep step_;
  Tensor workspace_;
};

}  // namespace quintet::decoding
