#include "apps/whole_batches.h"

namespace quintet {

std::optional<data::Batch> WholeBatches::next() {
  std::optional<data::Batch> part = part_->next();
  if (!part || shards_.size() == 1) return part;
  data::Batch whole;
  std::vector<Pending> gathers;
  for (const auto& [name, rows] : part->features) {
    std::vector<int64_t> shape = rows.shape;
    shape[0] *= shards_.size();
    HostArray& all = whole.features[name] = HostArray(rows.dtype, std::move(shape));
    gathers.push_back(
        shards_.all_gather(rows.bytes.data(), all.bytes.data(), rows.elements(), rows.dtype));
  }
  whole.rows = part->rows;
  gathers.push_back(shards_.all_reduce(&whole.rows, 1, DType::i64));
  for (Pending& gather : gathers) gather.wait();
  return whole;
}

}  // namespace quintet
