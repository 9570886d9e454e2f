// Grouped products on shapes that fill and cross the tiles of the tensor-core kernels: experts with
// more rows than a tile, with one, with none; more columns than a tile; more terms than buffers; more
// experts than lanes.

#include "tests/ops/moe_packing.h"

namespace quintet::testing {

std::vector<OpCase> moe_tiles_cases() {
  std::vector<int64_t> many(40);
  for (size_t e = 0; e < many.size(); ++e) many[e] = e % 7 == 0 ? 9 : static_cast<int64_t>(e % 3);
  const Packing uneven({3, 0, 131, 1, 40, 0}, 7), one({0, 290, 0}, 0), none({0, 0}, 21);
  return {experts_in_case("tiles", uneven, 72, 136, true, true),
          experts_in_case("tiles", uneven, 16, 152, false, false),
          experts_in_case("none_served", none, 8, 16, true, true),
          experts_in_grad_case("tiles", uneven, 72, 136, true),
          grouped_grad_w_case("long", one, 264, 24),
          grouped_case("long", one, 264, 24),
          grouped_case("wide", uneven, 24, 264),
          grouped_case("many", Packing(many, 3), 40, 72)};
}

}  // namespace quintet::testing
