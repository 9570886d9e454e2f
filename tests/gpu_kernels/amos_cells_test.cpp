// Amos with states smaller than the parameter, cells of a warp and of a block, against the CPU's passes.

#include "kernels/optimizers/amos_cells.h"

#include "kernels/optimizers/gpu_arrays.h"
#include "tests/gpu_kernels/on_device.h"

namespace quintet::testing {
namespace {

class AmosStates : public DeviceTest {};

struct Case {
  std::vector<int64_t> sizes, kept;  // kept: 1 where an axis is not reduced
};
const std::vector<Case> kCases{{{100, 200}, {0, 0}}, {{7, 33, 5}, {1, 0, 1}},
                               {{300, 3}, {0, 1}},   {{40, 9000}, {1, 0}},
                               {{17}, {1}},          {{}, {}}};
const rules::Amos kRule{0.9F, 0.1F, 0.3F, 0.01F, 1e-4F, 0.025F, 0.25F, 0.01F, 1e-30F};

/// The arrays of a case in ordinary memory.
struct Arrays {
  std::vector<float> gradient, param, v, b, decay, rate;
  std::vector<double> sums;
  AmosCells cells;

  explicit Arrays(const Case& c, uint64_t seed) {
    cells.rank = static_cast<int>(c.sizes.size());
    cells.n = cells.cells = 1;
    for (size_t axis = c.sizes.size(); axis-- > 0;) {
      cells.sizes[axis] = c.sizes[axis];
      cells.strides[axis] = c.kept[axis] != 0 ? cells.cells : 0;
      if (c.kept[axis] != 0) cells.cells *= c.sizes[axis];
      cells.n *= c.sizes[axis];
    }
    cells.members = cells.n / cells.cells;
    cells.eta = 0.5F;
    const auto n = static_cast<size_t>(cells.n), count = static_cast<size_t>(cells.cells);
    gradient = normals(n, seed);
    param = normals(n, seed + 1);
    for (std::vector<float>* state : {&v, &b}) {
      *state = normals(count, seed + 2);
      for (float& x : *state) x *= x;
    }
    decay = rate = std::vector<float>(count, 7.0F);
    sums = std::vector<double>(count, 7.0);
  }
};

TEST_F(AmosStates, AreTheCpus) {
  on_every_schedule([&] {
    for (size_t i = 0; i < kCases.size(); ++i) {
      SCOPED_TRACE(i);
      Arrays want(kCases[i], 10 * i);
      const OnDevice<float> gradient(device(), want.gradient), param(device(), want.param),
          v(device(), want.v), b(device(), want.b), decay(device(), want.decay),
          rate(device(), want.rate);
      const OnDevice<double> sums(device(), want.sums);
      AmosCells cells = want.cells;
      cells.gradient = gradient.data(), cells.param = param.data();
      cells.v = v.data(), cells.b = b.data(), cells.sums = sums.data();
      cells.decay = decay.data(), cells.rate = rate.data();
      device().kernels().sum_amos_cells({&cells, 1}, device().stream());
      device().kernels().update_amos_cells({&cells, 1}, kRule, nullptr, device().stream());
      device().synchronize();
      cells.gradient = want.gradient.data(), cells.param = want.param.data();
      cells.v = want.v.data(), cells.b = want.b.data(), cells.sums = want.sums.data();
      cells.decay = want.decay.data(), cells.rate = want.rate.data();
      cpu::sum_amos_cells({&cells, 1});
      cpu::update_amos_cells({&cells, 1}, kRule);
      expect_near(v.back(), want.v, 1e-6, 1e-3, "v");
      expect_near(b.back(), want.b, 1e-6, 1e-3, "b");
      expect_near(gradient.back(), want.gradient, 2e-6, 1e-3, "update");
    }
  });
}

TEST_F(AmosStates, StayWhereAnUpdateIsSkipped) {
  Arrays arrays(kCases[1], 3);
  const OnDevice<float> gradient(device(), arrays.gradient), param(device(), arrays.param),
      v(device(), arrays.v), b(device(), arrays.b), decay(device(), arrays.decay),
      rate(device(), arrays.rate);
  const OnDevice<double> sums(device(), arrays.sums);
  const OnDevice<int32_t> control(device(), {0, 1});  // UpdateControl: scale, skip
  AmosCells cells = arrays.cells;
  cells.gradient = gradient.data(), cells.param = param.data();
  cells.v = v.data(), cells.b = b.data(), cells.sums = sums.data();
  cells.decay = decay.data(), cells.rate = rate.data();
  device().kernels().sum_amos_cells({&cells, 1}, device().stream());
  device().kernels().update_amos_cells({&cells, 1}, kRule,
                                       reinterpret_cast<const UpdateControl*>(control.data()),
                                       device().stream());
  device().synchronize();
  EXPECT_EQ(v.back(), arrays.v);
  EXPECT_EQ(b.back(), arrays.b);
  EXPECT_EQ(gradient.back(), arrays.gradient);
}

}  // namespace
}  // namespace quintet::testing
