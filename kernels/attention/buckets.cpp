#include "kernels/attention/buckets.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/check.h"

namespace quintet {
namespace {

int64_t buckets_a_side(const BucketRule& rule) {
  return rule.bidirectional ? rule.buckets / 2 : rule.buckets;
}

}  // namespace

void BucketRule::check() const {
  const int64_t exact = buckets_a_side(*this) / 2;
  QT_CHECK(
      exact >= 1 && max_distance > exact,
      "relative position bias: {} buckets ({}) up to max_distance {}: needs at least {} buckets "
      "and a max_distance above {}",
      buckets, bidirectional ? "bidirectional" : "unidirectional", max_distance,
      bidirectional ? 4 : 2, exact);
}

int32_t BucketRule::bucket(int64_t relative_position) const {
  const int64_t side = buckets_a_side(*this), exact = side / 2;
  const bool is_after = relative_position > 0;
  const int64_t first = bidirectional && is_after ? side : 0;
  const int64_t distance =
      bidirectional ? std::abs(relative_position) : std::max<int64_t>(-relative_position, 0);
  if (distance < exact) return static_cast<int32_t>(first + distance);
  if (distance >= max_distance) return static_cast<int32_t>(first + side - 1);
  const float ratio = static_cast<float>(distance) / static_cast<float>(exact);
  const auto span =
      static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
  const float growth = std::log(ratio + std::numeric_limits<float>::epsilon()) / span *
                       static_cast<float>(side - exact);
  return static_cast<int32_t>(first + std::min(exact + static_cast<int64_t>(growth), side - 1));
}

std::vector<int32_t> BucketRule::diagonals(int64_t first, int64_t count) const {
  std::vector<int32_t> found(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) found[static_cast<size_t>(i)] = bucket(first + i);
  return found;
}

}  // namespace quintet
