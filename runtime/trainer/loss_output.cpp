#include "runtime/trainer/loss_output.h"

namespace quintet {

Tensors reads_of(std::span<const LossOutput> losses) {
  Tensors all;
  for (const LossOutput& loss : losses) all.insert(all.end(), loss.reads.begin(), loss.reads.end());
  return all;
}

Metrics metrics_of(std::span<const LossOutput> losses, const HostArrays& batch,
                   std::span<const HostArray> values) {
  Metrics metrics;
  for (const LossOutput& loss : losses) {
    QT_ASSERT(loss.reads.size() <= values.size());
    if (loss.metrics)
      merge_microbatch(metrics, loss.metrics(batch, values.first(loss.reads.size())));
    values = values.subspan(loss.reads.size());
  }
  return metrics;
}

Metrics metrics_of(const LossOutput& loss, const HostArrays& batch) {
  return metrics_of({&loss, 1}, batch, read_together(loss.reads));
}

}  // namespace quintet
