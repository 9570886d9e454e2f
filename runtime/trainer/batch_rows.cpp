#include "runtime/trainer/batch_rows.h"

#include <algorithm>
#include <cstring>

#include "runtime/execution/rank_sums.h"
#include "runtime/mesh/reshard_plan.h"
#include "runtime/mesh/sharding.h"

namespace quintet {

BatchPart batch_part() {
  const Sharding* sharding = ExecutionContext::current().sharding;
  if (sharding == nullptr) return {};
  const MeshAxes axes = sharding->row_axes();
  return {sharding->index_in(axes), parts_of(axes, sharding->mesh()), axes};
}

HostArrays local_rows(const HostArrays& batch, int64_t microbatches) {
  const BatchPart part = batch_part();
  HostArrays local;
  for (const auto& [name, global] : batch) {
    std::vector<int64_t> shape = global.shape;
    QT_CHECK(shape[0] % (part.count * microbatches) == 0,
             "{} [batch={}, ...]: cannot be sharded over mesh axis '{}' of size {}{}; choose a "
             "multiple of "
             "{} rows",
             name, shape[0], fmt::join(part.axes, "+"), part.count,
             microbatches > 1 ? fmt::format(" and into {} microbatches", microbatches) : "",
             part.count * microbatches);
    shape[0] /= part.count;
    HostArray& rows = local[name] = HostArray(global.dtype, shape);
    const size_t bytes = rows.bytes.size() / static_cast<size_t>(microbatches);
    for (int64_t i = 0; i < microbatches; ++i)
      std::memcpy(rows.bytes.data() + static_cast<size_t>(i) * bytes,
                  global.bytes.data() + static_cast<size_t>(i * part.count + part.index) * bytes,
                  bytes);
  }
  return local;
}

void sum_over_batch(std::span<double> counts) {
  const BatchPart part = batch_part();
  if (part.count > 1) reduce_over_ranks(counts, part.axes);
}

StepFlags agree_on_step(const StepFlags& own, std::span<double> counts) {
  const Sharding* sharding = ExecutionContext::current().sharding;
  if (sharding == nullptr) return own;
  const MeshAxes all = sharding->axes();
  const bool is_first = sharding->has_first_copy(batch_part().axes, all);
  std::vector<double> said = {own.stop ? 1.0 : 0, own.ended ? 1.0 : 0, own.ruined ? 1.0 : 0};
  const size_t flags = said.size();
  for (const double count : counts) said.push_back(is_first ? count : 0);
  reduce_over_ranks(said, all);
  std::copy(said.begin() + static_cast<std::ptrdiff_t>(flags), said.end(), counts.begin());
  return {said[0] > 0, said[1] > 0, said[2] > 0};
}

}  // namespace quintet
