// AdamW, Lion and SGD over lists of arrays, and the statistics of gradients, against the CPU's
// passes.

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/optimizers/rules_cpu.h"
#include "tests/gpu_kernels/on_device.h"

namespace quintet::testing {
namespace {

class Updates : public DeviceTest {};

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
const std::vector<size_t> kSizes{5, 0, 4096, 1, 8192, 8193, 20003};

/// One array with its state, on the device and on the CPU.
struct Param {
  std::vector<float> gradient, param, first, second;
  OnDevice<float> gradient_on, param_on, first_on, second_on;
  OnDevice<bfloat16> copy_on;

  Param(Device& device, size_t n, uint64_t seed, int shift, bool squares_first = false)
      : gradient(normals(n, seed)),
        param(normals(n, seed + 1)),
        first(normals(n, seed + 2, 0.1)),
        second(normals(n, seed + 3, 0.1)),
        gradient_on(device, gradient, shift),
        param_on(device, param, shift),
        first_on(device, squares_first ? squared(first) : first, shift),
        second_on(device, squared(second), shift),
        copy_on(device, std::vector<bfloat16>(n), shift) {}
  static std::vector<float>& squared(std::vector<float>& v) {
    for (float& x : v) x *= x;
    return v;
  }
  int64_t n() const { return static_cast<int64_t>(param.size()); }
  UpdateArrays arrays() const {
    return {gradient_on.data(), param_on.data(), first_on.data(),
            second_on.data(),   copy_on.data(),  n()};
  }
  void expect_equal(bool has_second) const {
    const std::vector<float> now = param_on.back();
    expect_near(now, param, 1e-6, 0.1, "param");
    expect_near(first_on.back(), first, 1e-6, 0.1, "first");
    if (has_second) expect_near(second_on.back(), second, 1e-6, 1e-3, "second");
    const auto copy = copy_on.back();
    for (size_t i = 0; i < now.size(); ++i)
      ASSERT_EQ(copy[i].bits, bfloat16(now[i]).bits) << "copy of element " << i;
  }
};

std::vector<Param> make_params(Device& device, int shift, bool squares_first = false) {
  std::vector<Param> params;
  params.reserve(kSizes.size());
  for (size_t i = 0; i < kSizes.size(); ++i)
    params.emplace_back(device, kSizes[i], 10 * i, shift, squares_first);
  return params;
}
std::vector<UpdateArrays> arrays_of(const std::vector<Param>& params) {
  std::vector<UpdateArrays> arrays;
  for (const Param& p : params) arrays.push_back(p.arrays());
  return arrays;
}

/// Runs both sides on aligned and unaligned arrays. Cpu: (param, gradient use).
template <typename Gpu, typename Cpu>
void compare(Device& device, const Gpu& gpu, const Cpu& cpu, bool has_second) {
  for (int shift : {0, 1}) {
    std::vector<Param> params = make_params(device, shift);
    gpu(arrays_of(params));
    for (Param& p : params) {
      cpu(p);
      p.expect_equal(has_second);
    }
  }
}

const cpu::AdamStep kAdam{0.9f, 0.1f, 0.99f, 0.01f, 1.5f, 0.25f, 2.0f, 1e-8f, 1e-9f, 0.01f, 0.1f};
const cpu::LionStep kLion{0.9f, 0.1f, 0.99f, 0.01f, 0.01f, 0.1f};
const cpu::GradientUse kUse{0.5f, 0.4f};

TEST_F(Updates, AdamIsThatOfTheCpu) {
  on_every_schedule([&] {
    compare(
        device(),
        [&](const auto& arrays) {
          device().kernels().update_adam(arrays, kAdam, kUse, nullptr, device().stream());
        },
        [&](Param& p) {
          cpu::adam_update(p.n(), kAdam, kUse, p.gradient.data(), p.param.data(), p.first.data(),
                           p.second.data());
        },
        true);
  });
}

TEST_F(Updates, LionIsThatOfTheCpu) {
  on_every_schedule([&] {
    compare(
        device(),
        [&](const auto& arrays) {
          device().kernels().update_lion(arrays, kLion, kUse, nullptr, device().stream());
        },
        [&](Param& p) {
          cpu::lion_update(p.n(), kLion, kUse, p.gradient.data(), p.param.data(), p.first.data());
        },
        false);
  });
}

TEST_F(Updates, SgdIsThatOfTheCpu) {
  on_every_schedule([&] {
    for (bool nesterov : {false, true}) {
      const cpu::SgdStep step{0.9f, 0.01f, nesterov};
      compare(
          device(),
          [&](const auto& arrays) {
            device().kernels().update_sgd(arrays, step, kUse, nullptr, device().stream());
          },
          [&](Param& p) {
            cpu::sgd_update(p.n(), step, kUse, p.gradient.data(), p.param.data(), p.first.data());
          },
          false);
    }
    const cpu::SgdStep plain{0.0f, 0.01f, false};
    compare(
        device(),
        [&](std::vector<UpdateArrays> arrays) {
          for (UpdateArrays& a : arrays) a.first = nullptr;
          device().kernels().update_sgd(arrays, plain, kUse, nullptr, device().stream());
        },
        [&](Param& p) {
          cpu::sgd_update(p.n(), plain, kUse, p.gradient.data(), p.param.data(), nullptr);
        },
        false);
  });
}

/// Whether the rule's first state is a mean or a sum of squares.
bool squares_first(const UpdateRule& rule) {
  return std::holds_alternative<rules::RootOfSum>(rule) ||
         std::holds_alternative<rules::Rms>(rule) || std::holds_alternative<rules::Amos>(rule);
}

/// What a pass over a parameter on the device takes, each step with the same states: one of them uses first and second.
RuleArrays rule_arrays(const Param& p, RuleState state = {}) {
  RuleArrays arrays{p.gradient_on.data(), p.param_on.data(), p.copy_on.data(), p.n()};
  state.first = p.first_on.data();
  state.second = p.second_on.data();
  arrays.states.fill(state);
  return arrays;
}
/// The same on the CPU.
void update_on_cpu(Param& p, std::span<const RuleStep> steps, RuleState state = {}) {
  RuleArrays arrays{p.gradient.data(), p.param.data(), nullptr, p.n()};
  state.first = p.first.data();
  state.second = p.second.data();
  arrays.states.fill(state);
  cpu::update_by_rules(arrays, 0, p.n(), steps);
}

/// Steps on the device against the same text on a CPU.
void compare_rules(Device& device, std::span<const RuleStep> steps) {
  for (int shift : {0, 1}) {
    std::vector<Param> params =
        make_params(device, shift, std::ranges::any_of(steps, squares_first, &RuleStep::rule));
    std::vector<OnDevice<double>> squares;
    OnDevice<int32_t> found(device, std::vector<int32_t>(params.size()), 0);
    std::vector<RuleArrays> arrays;
    for (size_t i = 0; i < params.size(); ++i) {
      squares.emplace_back(device, std::vector<double>{4, static_cast<double>(i)}, 0);
      arrays.push_back(rule_arrays(params[i], {.factor = 0.5f + static_cast<float>(i),
                                               .squares = squares.back().data(),
                                               .found = found.data() + i}));
    }
    device.kernels().update_rules(arrays, steps, device.stream());
    const std::vector<int32_t> marks = found.back();
    for (size_t i = 0; i < params.size(); ++i) {
      Param& p = params[i];
      const std::vector<double> of_cpu{4, static_cast<double>(i)};
      int32_t mark = 0;
      update_on_cpu(
          p, steps,
          {.factor = arrays[i].states[0].factor, .squares = of_cpu.data(), .found = &mark});
      EXPECT_EQ(marks[i], mark);
      expect_near(p.param_on.back(), p.param, 1e-6, 0.1, "param");
      expect_near(p.first_on.back(), p.first, 1e-6, 0.1, "first");
      expect_near(p.second_on.back(), p.second, 1e-6, 1e-3, "second");
      // Of terms around 1 that may cancel; a GPU fuses products into sums.
      expect_near(p.gradient_on.back(), p.gradient, 1e-6, 1, "gradient");
    }
  }
}

TEST_F(Updates, RulesAreThoseOfTheCpu) {
  const std::vector<UpdateRule> all{
      rules::Use{},
      rules::Apply{},
      rules::Zero{},
      rules::Decay{0.25f},
      rules::Trace{0.9f, false},
      rules::Trace{0.9f, true},
      rules::Lion{kLion},
      rules::Adam{kAdam},
      rules::Belief{kAdam},
      rules::Yogi{kAdam},
      rules::RectifiedAdam{kAdam, 0.3f},
      rules::RectifiedAdam{kAdam, 0},
      rules::Adamax{kAdam},
      rules::RootOfSum{1e-3f},
      rules::Rms{0.9f, 0.1f, 1e-3f},
      rules::StandardDeviation{0.9f, 0.1f, 1.0f},
      rules::Ema{0.9f, 0.1f, 1.5f},
      rules::AddNoise{0.3f},
      rules::ZeroNans{},
      rules::Accumulate{3, true, false},
      rules::Accumulate{3, false, true},
      rules::Amos{0.9f, 0.1f, 0.5f, 0.1f, 0.01f, 0.08f, 0.25f, 0.01f, 1e-30f},
      rules::TrustRatio{0.5f, 1e-3f, 1e-3f}};
  for (const UpdateRule& rule : all) {
    SCOPED_TRACE(rule.index());
    compare_rules(device(), std::array{RuleStep{rule, kUse}});
  }
}

TEST_F(Updates, AChainOfRulesIsOnePass) {
  const std::vector<RuleStep> chain{
      {.use = {.limit = 0.4f}},  {rules::Adam{kAdam}},
      {rules::Decay{0.25f}},     {rules::TrustRatio{0.5f, 1e-3f, 1e-3f}},
      {.use = {.scale = -0.1f}}, {rules::Apply{}}};
  ASSERT_EQ(chain.size(), kMostRules);
  on_every_schedule([&] { compare_rules(device(), chain); });
  compare_rules(device(), std::span(chain).first(4));  // and leaves the gradient to others
}

TEST_F(Updates, NothingHappensWhereOneStepsControlSkips) {
  Param p(device(), 5000, 3, 0);
  const OnDevice<UpdateControl> control(device(), {{.scale = 2, .skip = 1}}, 0);
  const std::vector<RuleStep> steps{{rules::Adam{kAdam}},
                                    {.rule = rules::Apply{}, .control = control.data()}};
  device().kernels().update_rules(std::array{rule_arrays(p)}, steps, device().stream());
  EXPECT_EQ(p.param_on.back(), p.param);
  EXPECT_EQ(p.first_on.back(), p.first);
}

TEST_F(Updates, AStepsControlScalesItsGradient) {
  Param p(device(), 5000, 3, 0);
  const OnDevice<UpdateControl> control(device(), {{.scale = 0.5f}}, 0);
  device().kernels().update_rules(
      std::array{rule_arrays(p)},
      std::array{RuleStep{.use = {.limit = 0.3f}}, RuleStep{.control = control.data()}},
      device().stream());
  update_on_cpu(p, std::array{RuleStep{.use = {.limit = 0.3f}}, RuleStep{.use = {.scale = 0.5f}}});
  EXPECT_EQ(p.gradient_on.back(), p.gradient);
}

TEST_F(Updates, RulesKeepTheFirstStateInSixteenBits) {
  Param p(device(), 9000, 5, 0);
  std::vector<bfloat16> rounded;
  for (const float x : p.first) rounded.emplace_back(x);
  OnDevice<bfloat16> first(device(), rounded, 0);
  RuleArrays on = rule_arrays(p), of_cpu{p.gradient.data(), p.param.data(), nullptr, p.n()};
  on.states[0].first = reinterpret_cast<float*>(first.data());
  of_cpu.states[0] = {reinterpret_cast<float*>(rounded.data()), p.second.data()};
  on.states[0].first_is_bf16 = of_cpu.states[0].first_is_bf16 = true;
  const std::array steps{RuleStep{rules::Adam{kAdam}}};
  device().kernels().update_rules(std::array{on}, steps, device().stream());
  cpu::update_by_rules(of_cpu, 0, p.n(), steps);
  std::vector<float> got, want;
  for (const bfloat16 x : first.back()) got.push_back(static_cast<float>(x));
  for (const bfloat16 x : rounded) want.push_back(static_cast<float>(x));
  expect_near(got, want, 0.004, 1e-6, "first");  // a unit in the last place of 8 bits
  expect_near(p.gradient_on.back(), p.gradient, 1e-6, 1, "gradient");
}

/// NaNs are passed on by clips and scales, found, and made 0.
TEST_F(Updates, ZeroNansFindsThem) {
  Param p(device(), 5000, 3, 0);
  p.gradient[4999] = kNaN;
  const OnDevice<float> gradient(device(), p.gradient, 0);
  const OnDevice<int32_t> found(device(), {0}, 0);
  RuleArrays arrays = rule_arrays(p, {.found = found.data()});
  arrays.gradient = gradient.data();
  device().kernels().update_rules(std::array{arrays}, std::array{RuleStep{rules::ZeroNans{}, kUse}},
                                  device().stream());
  EXPECT_EQ(found.back()[0], 1);
  EXPECT_EQ(gradient.back()[4999], 0);
}

TEST_F(Updates, AnAbsentGradientIsZero) {
  Param p(device(), 300, 5, 0);
  UpdateArrays arrays = p.arrays();
  arrays.gradient = nullptr;
  device().kernels().update_adam(std::array{arrays}, kAdam, {}, nullptr, device().stream());
  const std::vector<float> zero(300);
  cpu::adam_update(p.n(), kAdam, {}, zero.data(), p.param.data(), p.first.data(), p.second.data());
  p.expect_equal(true);
}

TEST_F(Updates, ListsLongerThanATableAreUpdatedWhole) {
  std::vector<Param> params;
  params.reserve(1500);
  for (size_t i = 0; i < 1500; ++i) params.emplace_back(device(), i % 4, i, 0);
  const cpu::SgdStep step{0.5f, 0.1f, false};
  device().kernels().update_sgd(arrays_of(params), step, {}, nullptr, device().stream());
  for (Param& p : params) {
    cpu::sgd_update(p.n(), step, {}, p.gradient.data(), p.param.data(), p.first.data());
    p.expect_equal(false);
  }
}

/// statistics of arrays and the control decided from them.
struct Decision {
  std::vector<ArrayStatistics> statistics;
  UpdateControl control;
};
Decision decide(Device& device, const std::vector<View>& views, double max_norm) {
  const size_t count = views.size() + 1;
  const Buffer statistics =
      device.memory().allocate(static_cast<int64_t>(count * sizeof(ArrayStatistics)));
  const Buffer control = device.memory().allocate(sizeof(UpdateControl));
  auto* on = reinterpret_cast<ArrayStatistics*>(statistics.get());
  auto* control_on = reinterpret_cast<UpdateControl*>(control.get());
  device.kernels().measure_arrays(views, on, nullptr, device.stream());
  device.kernels().decide_update(&(on + views.size())->squares, max_norm, nullptr, control_on,
                                 device.stream());
  Decision d{std::vector<ArrayStatistics>(count), {}};
  device.copy_out(d.statistics.data(), on, static_cast<int64_t>(count * sizeof(ArrayStatistics)));
  device.copy_out(&d.control, control_on, sizeof(UpdateControl));
  return d;
}

TEST_F(Updates, StatisticsAreThoseOfTheNumbers) {
  on_every_schedule([&] {
    for (int shift : {0, 1}) {
      std::vector<std::vector<float>> values;
      std::vector<OnDevice<float>> on;
      std::vector<View> views;
      for (size_t n : {3, 0, 70000, 32768, 1}) values.push_back(normals(n, n + 1));
      values[2][69999] = -1e25f;  // its square is beyond float32
      for (const auto& v : values) on.emplace_back(device(), v, shift);
      for (const auto& o : on) views.push_back(o.view());
      views.push_back(View::none());
      values.emplace_back();
      const Decision d = decide(device(), views, 0);
      double total = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        double squares = 0;
        float largest = 0;
        for (float x : values[i]) {
          squares += static_cast<double>(x) * static_cast<double>(x);
          largest = std::max(largest, std::abs(x));
        }
        total += squares;
        EXPECT_NEAR(d.statistics[i].squares, squares, 1e-6 * squares) << "array " << i;
        EXPECT_EQ(d.statistics[i].largest, largest) << "array " << i;
        EXPECT_EQ(d.statistics[i].is_finite, 1) << "array " << i;
      }
      EXPECT_NEAR(d.statistics.back().squares, total, 1e-6 * total);
      EXPECT_EQ(d.statistics.back().largest, 1e25f);
      EXPECT_EQ(d.control.skip, 0);
      EXPECT_EQ(d.control.scale, 1.0f);
    }
  });
}

TEST_F(Updates, ANaNOrAnInfinityIsSeenAndSkipsTheUpdate) {
  for (float bad : {kNaN, std::numeric_limits<float>::infinity()}) {
    std::vector<float> good = normals(100, 1), broken = normals(40000, 2);
    broken[39998] = bad;
    const OnDevice<float> a(device(), good), b(device(), broken);
    const Decision d = decide(device(), {a.view(), b.view()}, 1.0);
    EXPECT_EQ(d.statistics[0].is_finite, 1);
    EXPECT_EQ(d.statistics[1].is_finite, 0);
    EXPECT_EQ(d.statistics[2].is_finite, 0);
    EXPECT_EQ(d.control.skip, 1);
    Param p(device(), 1000, 3, 0);
    const OnDevice<UpdateControl> control(device(), {d.control});
    device().kernels().update_adam(std::array{p.arrays()}, kAdam, {}, control.data(),
                                   device().stream());
    EXPECT_EQ(p.param_on.back(), p.param);
    EXPECT_EQ(p.first_on.back(), p.first);
  }
}

TEST_F(Updates, TheDeviceClipsByTheGlobalNorm) {
  const std::vector<float> values = normals(5000, 8);
  double squares = 0;
  for (float x : values) squares += static_cast<double>(x) * static_cast<double>(x);
  const OnDevice<float> on(device(), values);
  const Decision far = decide(device(), {on.view()}, 1.0);
  EXPECT_NEAR(far.control.scale, 1 / std::sqrt(squares), 1e-6 / std::sqrt(squares));
  EXPECT_EQ(decide(device(), {on.view()}, 1e6).control.scale, 1.0f);
  Param p(device(), 1000, 3, 0);
  const OnDevice<UpdateControl> control(device(), {far.control});
  device().kernels().update_lion(std::array{p.arrays()}, kLion, kUse, control.data(),
                                 device().stream());
  cpu::lion_update(p.n(), kLion, {kUse.scale * far.control.scale, kUse.limit}, p.gradient.data(),
                   p.param.data(), p.first.data());
  p.expect_equal(false);
}

TEST_F(Updates, WhatTheyLeaveNotFiniteIsMarked) {
  const auto marks_of = [&](const auto& update, float bad_gradient) {
    std::vector<Param> params = make_params(device(), 0);
    // In the short unit at the end.
    device().copy_in(params[6].gradient_on.data() + kSizes[6] - 1, &bad_gradient, sizeof(float));
    const OnDevice<int32_t> marks(device(), std::vector<int32_t>(params.size()));
    std::vector<UpdateArrays> arrays = arrays_of(params);
    for (size_t i = 0; i < arrays.size(); ++i) arrays[i].not_finite = marks.data() + i;
    update(arrays);
    return marks.back();
  };
  const std::vector<int32_t> none(kSizes.size()), last{0, 0, 0, 0, 0, 0, 1};
  const GpuKernels& kernels = device().kernels();
  const auto adam = [&](const auto& arrays) {
    kernels.update_adam(arrays, kAdam, {}, nullptr, device().stream());
  };
  const auto lion = [&](const auto& arrays) {
    kernels.update_lion(arrays, kLion, {}, nullptr, device().stream());
  };
  const auto sgd = [&](const auto& arrays) {
    kernels.update_sgd(arrays, {0.9f, 10.0f, false}, {}, nullptr, device().stream());
  };
  EXPECT_EQ(marks_of(adam, 1.0f), none);
  EXPECT_EQ(marks_of(adam, 1e25f), last) << "its square is in the state";
  EXPECT_EQ(marks_of(lion, 1.0f), none);
  EXPECT_EQ(marks_of(lion, std::numeric_limits<float>::infinity()), last);
  EXPECT_EQ(marks_of(sgd, 1.0f), none);
  EXPECT_EQ(marks_of(sgd, 3e38f), last) << "ten times that is too much for the parameter";
}

}  // namespace
}  // namespace quintet::testing
