#include "runtime/execution/rank_sums.h"

#include "runtime/mesh/mesh.h"
#include "runtime/mesh/reshard_plan.h"
#include "runtime/mesh/sharding.h"
#include "runtime/profile/step_log.h"

namespace quintet {
namespace {

template <typename T>
void reduce(std::span<T> values, const MeshAxes& axes, Reduction how, bool on_host) {
  const Sharding& sharding = *ExecutionContext::current().sharding;
  const auto bytes = static_cast<int64_t>(values.size_bytes());
  const auto ranks = static_cast<int>(parts_of(axes, sharding.mesh()));
  if (StepLog* log = ExecutionContext::current().log)
    log->statistics(axes, bytes, Traffic::sent("all_reduce", bytes, ranks));
  if (sharding.ranks() == nullptr) return;
  const Group& group = sharding.ranks()->group(axes);
  (on_host ? group.on_host() : group)
      .all_reduce(values.data(), static_cast<int64_t>(values.size()), dtype_of<T>(), how)
      .wait();
}

}  // namespace

void reduce_over_ranks(std::span<double> values, const MeshAxes& axes, Reduction how) {
  reduce(values, axes, how, true);
}

void sum_over_ranks_on_device(std::span<double> values, const MeshAxes& axes) {
  reduce(values, axes, Reduction::sum, false);
}

void max_over_ranks_on_device(std::span<float> values, const MeshAxes& axes) {
  reduce(values, axes, Reduction::max, false);
}

}  // namespace quintet
