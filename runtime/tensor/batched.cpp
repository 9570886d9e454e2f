#include "runtime/tensor/batched.h"

#include <algorithm>

#include "runtime/mesh/sharding.h"

namespace quintet {

bool batches_products(const Device& device) {
  // Of simulated devices those that take a GPU's place, whose ranks would talk over NCCL.
  return !device.is_cpu() && (device.memory_is_real() || device.supports_nccl());
}

bool is_multiplied_as_placed(const Layout& matrix) {
  if (is_data_parallel()) return !matrix.sharded();
  const MeshAxes rows = ExecutionContext::current().sharding->row_axes();
  const MeshAxes& columns = matrix.dims[1];
  return matrix.dims[0].empty() && !columns.empty() &&
         std::ranges::none_of(columns, [&rows](const std::string& axis) {
           return std::ranges::find(rows, axis) != rows.end();
         });
}

}  // namespace quintet
