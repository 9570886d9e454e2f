#include "checkpoint/checkpoint_reader.h"

#include <fmt/ranges.h>

#include "runtime/base/check.h"

namespace quintet {

const std::string& CheckpointReader::state_json() const {
  static const std::string nothing = "{}";
  return nothing;
}

void CheckpointReader::check_region(const TensorRegion& region) const {
  const auto found = tensors_.find(region.name);
  QT_CHECK_AS(ExitCode::kData, found != tensors_.end(), "{}: has no tensor '{}'", folder_.string(),
              region.name);
  const std::vector<int64_t>& shape = found->second.shape;
  bool inside = region.origin.size() == shape.size() && region.sizes.size() == shape.size();
  for (size_t i = 0; inside && i < shape.size(); ++i)
    inside = region.origin[i] >= 0 && region.sizes[i] >= 0 &&
             region.origin[i] + region.sizes[i] <= shape[i];
  QT_CHECK(inside, "{}: the region asked for is not inside tensor '{}' of shape [{}]",
           folder_.string(), region.name, fmt::join(shape, ", "));
}

void CheckpointReader::read(const TensorRegion& region, std::byte* target) const {
  check_region(region);
  read_region(region, target);
}

std::optional<RegionInPlace> CheckpointReader::in_place(const TensorRegion& region) const {
  check_region(region);
  return region_in_place(region);
}

}  // namespace quintet
