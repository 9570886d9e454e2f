// Gradients that are kept in bfloat16: every optimizer reads them as the floats they are, on a CPU and on a GPU.

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/random/random.h"
#include "runtime/optim/adafactor/adafactor.h"
#include "runtime/optim/gradients.h"
#include "runtime/optim/multi_optimizer.h"
#include "runtime/optim/optax/amos.h"
#include "runtime/optim/optax/norms.h"
#include "runtime/optim/optax/optax.h"
#include "runtime/optim/state_buffer.h"
#include "tests/harness/device.h"

namespace quintet::testing {
namespace {

constexpr uint32_t kSteps = 3;

struct Array {
  std::string name;
  Axes axes;
  StateBuffer param, gradient;

  int64_t n() const { return param.view.elements(); }
  std::vector<float> normals(const std::string& of, uint32_t step, float deviation) const {
    std::vector<float> values(static_cast<size_t>(n()));
    fill_normal(fold_in(key_of_parameter({1, 2}, name + of), step), 0, values, deviation);
    return values;
  }
};

/// Parameters of one vector or a part of one and of several blocks, with gradients of a step that are bfloat16 numbers
/// and kept as `dtype`.
class Problem {
 public:
  explicit Problem(DType dtype) {
    add("a/kernel", {{"embed", 40}, {"mlp", 129}}, dtype);
    add("b/kernel", {{"embed", 64}, {"mlp", 640}}, dtype);
    add("c/bias", {{"mlp", 7}}, dtype);
    add("d/scale", {{"embed", 32}}, dtype);
  }
  std::vector<ParamSlot> slots(uint32_t step) {
    std::vector<ParamSlot> slots;
    for (Array& a : arrays_) {
      const std::vector<float> values = a.normals("/gradient", step, 0.1f);
      std::vector<bfloat16> rounded;
      std::vector<float> floats;
      for (const float x : values) rounded.emplace_back(x), floats.emplace_back(rounded.back());
      if (a.gradient.view.dtype == DType::bf16)
        device_.copy_in(a.gradient.view.pointer, rounded.data(), 2 * a.n());
      else
        device_.copy_in(a.gradient.view.pointer, floats.data(), 4 * a.n());
      slots.push_back({a.name, a.axes, a.param.view, a.gradient.view});
    }
    return slots;
  }
  std::vector<std::vector<float>> params() const {
    std::vector<std::vector<float>> all;
    for (const Array& a : arrays_) {
      all.emplace_back(static_cast<size_t>(a.n()));
      device_.copy_out(all.back().data(), a.param.view.pointer, 4 * a.n());
    }
    return all;
  }

 private:
  void add(const std::string& name, const Axes& axes, DType dtype) {
    std::vector<int64_t> sizes;
    for (const Axis& axis : axes) sizes.push_back(axis.size);
    Array a{name, axes, zero_state(DType::f32, sizes, device_), zero_state(dtype, sizes, device_)};
    const std::vector<float> values = a.normals("/param", 0, 0.3f);
    device_.copy_in(a.param.view.pointer, values.data(), 4 * a.n());
    arrays_.push_back(std::move(a));
  }
  Device& device_ = Device::current();
  std::vector<Array> arrays_;
};

using Make = std::function<OptimizerPtr()>;

std::vector<std::vector<float>> trained(const Make& make, DType dtype) {
  Problem problem(dtype);
  const OptimizerPtr optimizer = make();
  optimizer->init(problem.slots(0));
  for (uint32_t step = 0; step < kSteps; ++step)
    optimizer->update({.step = step, .learning_rate = 0.01f}, problem.slots(step));
  return problem.params();
}

const std::pair<const char*, Make> kOnePass[] = {
    {"adamw", [] { return optax_optimizer(adamw(1e-2)); }},
    {"clipped adamw",
     [] {
       return optax_optimizer(chain({clip_by_global_norm(0.5), adamw(1e-2)}));
     }},
    {"lion", [] { return optax_optimizer(lion(1e-2)); }},
    {"sgd", [] { return optax_optimizer(sgd(0.1)); }},
    {"momentum", [] { return optax_optimizer(sgd(0.1, {.momentum = 0.9, .nesterov = true})); }},
    {"rules",
     [] {
       return optax_optimizer(chain({scale_by_adam({}), scale(0.5), scale(-0.01)}));
     }},
    {"adafactor", [] { return adafactor({.beta1 = 0.9, .min_dim_size_to_factor = 16}); }},
    {"clipped adafactor",
     [] { return adafactor({.min_dim_size_to_factor = 64, .global_norm_clip_threshold = 0.5}); }},
    {"groups",
     [] {
       return multi_optimizer(
           {{matching("kernel"), optax_optimizer(adamw(1e-2))},
            {matching("/bias|/scale"), adafactor({.min_dim_size_to_factor = 16})}});
     }},
};

TEST(GradientDType, AnUpdateIsThatOfTheSameFloats) {
  for (const auto& [name, make] : kOnePass) {
    SCOPED_TRACE(name);
    const auto want = trained(make, DType::f32);
    EXPECT_EQ(trained(make, DType::bf16), want);
    EXPECT_NE(want, Problem(DType::f32).params());
  }
}

Shape reduced_to_rows(const std::string&, const Shape& shape) {
  return shape.size() == 2 ? Shape{shape[0], 1} : Shape{1};
}

// Sums of the whole array stand between two passes, which takes what the first made of the gradient rounded to bfloat16:
// by 2^-8 at most.
TEST(GradientDType, ChainsOfSeveralPassesRoundTheUpdateBetweenThem) {
  const std::pair<const char*, Make> several[] = {
      {"clips",
       [] {
         return optax_optimizer(chain({clip_by_global_norm(1), scale_by_adam({}),
                                       clip_by_global_norm(5), scale_by_learning_rate(1e-2)}));
       }},
      {"lamb",
       [] {
         return optax_optimizer(
             chain({scale_by_adam({}), scale_by_trust_ratio(), scale_by_learning_rate(1e-2)}));
       }},
      {"small amos", [] {
         return optax_optimizer(
             amos({{.learning_rate = 0.1,
                    .eta_fn = [](const std::string&, const Shape&) { return 0.5; },
                    .shape_fn = reduced_to_rows}}));
       }}};
  for (const auto& [name, make] : several) {
    SCOPED_TRACE(name);
    const auto before = Problem(DType::f32).params();
    const auto want = trained(make, DType::f32), got = trained(make, DType::bf16);
    EXPECT_NE(got, want);
    for (size_t i = 0; i < want.size(); ++i) {
      double moved = 0;
      for (size_t k = 0; k < want[i].size(); ++k)
        moved = std::max(moved, std::abs(static_cast<double>(want[i][k]) - before[i][k]));
      for (size_t k = 0; k < want[i].size(); ++k)
        ASSERT_NEAR(got[i][k], want[i][k], 4 * moved / 256) << i << " " << k;
    }
  }
}

TEST(GradientDType, NormsAreThoseOfTheSameFloats) {
  Problem floats(DType::f32), rounded(DType::bf16);
  const GradientCheck want = check_gradients(floats.slots(0), {.each = true});
  const GradientCheck got = check_gradients(rounded.slots(0), {.each = true});
  EXPECT_EQ(got.norm, want.norm);
  EXPECT_EQ(got.squares, want.squares);
  EXPECT_GT(want.norm, 0);
}

TEST(GradientDType, ANumberThatIsNotFiniteIsFound) {
  Problem problem(DType::bf16);
  std::vector<ParamSlot> slots = problem.slots(0);
  const bfloat16 bad(std::numeric_limits<float>::infinity());
  Device::current().copy_in(static_cast<bfloat16*>(slots[2].grad.pointer) + 5, &bad, sizeof bad);
  const GradientCheck check = check_gradients(slots);
  EXPECT_FALSE(check.all_finite);
  EXPECT_EQ(check.first_bad, "c/bias");
}

}  // namespace
}  // namespace quintet::testing
