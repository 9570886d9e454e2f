#include "runtime/metrics/metric.h"

namespace quintet {

void merge_microbatch(Metrics& into, const Metrics& more) {
  for (const auto& [name, metric] : more) {
    const auto [found, inserted] = into.emplace(name, metric);
    if (inserted) continue;
    found->second.total += metric.total;
    if (!metric.per_step) found->second.count += metric.count;
  }
}

void merge_step(Metrics& into, const Metrics& more) {
  for (const auto& [name, metric] : more) {
    const auto [found, inserted] = into.emplace(name, metric);
    if (inserted) continue;
    found->second.total += metric.total;
    found->second.count += metric.count;
  }
}

}  // namespace quintet
