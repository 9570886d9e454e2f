#pragma once
// What a step needs of the loss of a microbatch.

#include <functional>
#include <span>

#include "runtime/metrics/metric.h"
#include "runtime/tensor/read_together.h"

namespace quintet {

struct LossOutput {
  Tensor loss;         // scalar; losses of all microbatches add up to the batch's
  Tensors reads = {};  // what metrics needs of the device; read once for all microbatches
  /// T5X's compute_base_metrics, of the batch the loss was taken of: a step that is recorded once is repeated with
  /// others. `values`: of `reads`. Empty: none.
  std::function<Metrics(const HostArrays& batch, std::span<const HostArray> values)> metrics = {};
};

/// Of all microbatches of a batch: what their metrics need of the device, and the metrics. `values`: of those, in their
/// order; what follows them is not looked at.
Tensors reads_of(std::span<const LossOutput> losses);
Metrics metrics_of(std::span<const LossOutput> losses, const HostArrays& batch,
                   std::span<const HostArray> values);
/// The same of one, which waits for the device.
Metrics metrics_of(const LossOutput& loss, const HostArrays& batch);

}  // namespace quintet
