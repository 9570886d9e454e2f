#pragma once
// One element of dropout, as dropout.h defines it.

#include "runtime/base/threefry.h"
#include "tests/ops/harness.h"

namespace quintet::testing {

/// Element i of the block x after dropout.
inline double dropped(const Array& x, int64_t i, const Attrs& attrs) {
  const bool is_shared = attrs.get<int64_t>("broadcast_dim") == -2;
  int64_t number = 0, stride = 1, rest = i;
  for (size_t axis = x.shape.size(); axis-- > 0;) {
    const int64_t place = x.origin[axis] + rest % x.shape[axis];
    rest /= x.shape[axis];
    if (is_shared && axis + 2 == x.shape.size()) continue;  // one mask along this axis
    number += place * stride;
    stride *= x.global[axis];
  }
  const Key key{static_cast<uint32_t>(attrs.get<int64_t>("key0")),
                static_cast<uint32_t>(attrs.get<int64_t>("key1"))};
  const auto keep = static_cast<float>(1 - attrs.get<double>("rate"));
  const float uniform = random_uniform(random_bits(key, static_cast<uint64_t>(number)));
  return uniform < keep ? x[i] / static_cast<double>(keep) : 0.0;
}

}  // namespace quintet::testing
