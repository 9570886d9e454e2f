// Optimizers on shapes the fixtures do not have, against the shortest loops in double; and what
// must hold for any: the same result for any number of threads, state that restores, errors that
// name the parameter.

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "kernels/random/random.h"
#include "runtime/optim/adafactor/adafactor.h"
#include "runtime/optim/gradients.h"
#include "runtime/optim/multi_optimizer.h"
#include "runtime/optim/optax/optax.h"
#include "tests/harness/threads.h"

namespace quintet {
namespace {

/// Parameters with gradients that change from step to step.
class Problem {
 public:
  void add(std::string name, std::vector<std::string> axes, std::vector<int64_t> shape) {
    Array a{std::move(name), {}, std::move(shape), {}, {}};
    for (size_t i = 0; i < axes.size(); ++i) a.axes.push_back({axes[i], a.shape[i]});
    int64_t n = 1;
    for (int64_t size : a.shape) n *= size;
    a.param.resize(static_cast<size_t>(n));
    a.grad.resize(a.param.size());
    fill_normal(key_of_parameter({1, 2}, a.name + "/x"), 0, a.param, 0.3f);
    arrays_.push_back(std::move(a));
  }
  /// New gradients for step t: sizes differ by array and along the first axis.
  std::vector<ParamSlot> slots(uint32_t t) {
    std::vector<ParamSlot> result;
    for (Array& a : arrays_) {
      fill_normal(fold_in(key_of_parameter({3, 4}, a.name + "/x"), t), 0, a.grad, 0.1f);
      for (size_t i = 0; i < a.grad.size(); ++i)
        a.grad[i] *= 1.0f + 4.0f * static_cast<float>(i) / static_cast<float>(a.grad.size());
      result.push_back(
          {a.name, a.axes, View::of(a.param.data(), a.shape), View::of(a.grad.data(), a.shape)});
    }
    return result;
  }
  std::vector<std::vector<float>> params() const {
    std::vector<std::vector<float>> result;
    for (const Array& a : arrays_) result.push_back(a.param);
    return result;
  }
  std::vector<float>& param(size_t i) { return arrays_[i].param; }

 private:
  struct Array {
    std::string name;
    Axes axes;
    std::vector<int64_t> shape;
    std::vector<float> param, grad;
  };
  std::vector<Array> arrays_;
};

/// Adafactor in double, element by element: statistics by the index along ROW, COLUMN and BATCH
/// axes.
class AdafactorOracle {
 public:
  AdafactorOracle(const AdafactorOptions& o, std::vector<int64_t> shape,
                  std::vector<FactorDim> dims)
      : o_(o), shape_(std::move(shape)), dims_(std::move(dims)) {
    for (FactorDim dim : dims_) factored_ |= dim == FactorDim::kRow;
  }

  void update(int64_t step, double rate, std::vector<double>& param,
              const std::vector<double>& grad) {
    const size_t n = param.size();
    const double decay =
        1 - std::pow(static_cast<double>(step - o_.step_offset) + 1, -o_.decay_rate);
    std::vector<double> y(n);
    std::map<size_t, std::pair<double, double>> row, column, scale, clip;  // sum, count
    const auto mean = [](std::pair<double, double> sum) { return sum.first / sum.second; };
    const auto add = [](std::pair<double, double>& sum, double x) {
      sum.first += x, sum.second += 1;
    };
    v_.resize(n), m_.resize(n);
    for (size_t i = 0; i < n; ++i) {
      const double square = grad[i] * grad[i] + o_.epsilon1;
      add(row[without(FactorDim::kColumn, i)], square);
      add(column[without(FactorDim::kRow, i)], square);
      v_[i] = decay * v_[i] + (1 - decay) * square;
      y[i] = grad[i] / std::sqrt(v_[i]);
    }
    if (factored_) {
      std::map<size_t, std::pair<double, double>> row_means;
      for (auto& [k, sum] : row) v_row_[k] = decay * v_row_[k] + (1 - decay) * mean(sum);
      for (auto& [k, sum] : column) v_col_[k] = decay * v_col_[k] + (1 - decay) * mean(sum);
      for (size_t i = 0; i < n; ++i)
        add(row_means[batch(i)], v_row_[without(FactorDim::kColumn, i)]);
      for (size_t i = 0; i < n; ++i)
        y[i] = grad[i] /
               std::sqrt(v_row_[without(FactorDim::kColumn, i)] / mean(row_means[batch(i)])) /
               std::sqrt(v_col_[without(FactorDim::kRow, i)]);
    }
    for (size_t i = 0; i < n; ++i) add(scale[batch(i)], param[i] * param[i]);
    for (size_t i = 0; i < n; ++i) add(clip[batch(i)], y[i] * y[i]);
    for (size_t i = 0; i < n; ++i) {
      double u = rate * y[i];
      if (std::get<bool>(o_.multiply_by_parameter_scale))
        u *= std::max(o_.epsilon2, std::sqrt(mean(scale[batch(i)])));
      if (o_.clipping_threshold)
        u /= std::max(1.0, std::sqrt(mean(clip[batch(i)])) / *o_.clipping_threshold);
      if (o_.beta1) u = m_[i] = *o_.beta1 * m_[i] + (1 - *o_.beta1) * u;
      param[i] = (1 - o_.weight_decay_rate.value_or(0)) * param[i] - u;
    }
  }

 private:
  /// Flat index of element i with axes of this kind left out.
  size_t without(FactorDim left_out, size_t i) const {
    size_t index = 0;
    size_t stride = 1;
    for (size_t axis = shape_.size(); axis-- > 0;) {
      const auto size = static_cast<size_t>(shape_[axis]);
      if (dims_[axis] != left_out) index += i % size * stride, stride *= size;
      i /= size;
    }
    return index;
  }
  size_t batch(size_t i) const {
    size_t index = 0, stride = 1;
    for (size_t axis = shape_.size(); axis-- > 0;) {
      const auto size = static_cast<size_t>(shape_[axis]);
      if (dims_[axis] == FactorDim::kBatch) index += i % size * stride, stride *= size;
      i /= size;
    }
    return index;
  }

  AdafactorOptions o_;
  std::vector<int64_t> shape_;
  std::vector<FactorDim> dims_;
  bool factored_ = false;
  std::vector<double> v_, m_;
  std::map<size_t, double> v_row_, v_col_;
};

struct FactoredCase {
  std::string axes;  // one letter an axis: R, C, B, N
  std::vector<int64_t> shape;
};

void expect_like_oracle(const FactoredCase& c, AdafactorOptions options) {
  const std::map<char, FactorDim> kinds = {{'R', FactorDim::kRow},
                                           {'C', FactorDim::kColumn},
                                           {'B', FactorDim::kBatch},
                                           {'N', FactorDim::kNone}};
  options.logical_factor_rules.emplace();
  std::vector<std::string> names;
  std::vector<FactorDim> dims;
  for (char letter : c.axes) {
    names.push_back(std::string(1, letter));
    dims.push_back(kinds.at(letter));
    (*options.logical_factor_rules)[names.back()] = dims.back();
  }
  Problem problem;
  problem.add("p/kernel", names, c.shape);
  const OptimizerPtr optimizer = adafactor(options);
  optimizer->init(problem.slots(0));
  AdafactorOracle oracle(options, c.shape, dims);
  std::vector<double> want(problem.param(0).begin(), problem.param(0).end());
  for (uint32_t t = 0; t < 3; ++t) {
    const auto slots = problem.slots(t);
    const float* grad = slots[0].grad.data<float>();
    oracle.update(t, 0.01, want, {grad, grad + want.size()});
    optimizer->update({.step = t, .learning_rate = 0.01f, .gradient_norm = {}}, slots);
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(problem.param(0)[i], want[i], 1e-7 + 2e-6 * std::abs(want[i]))
          << "step " << t << " element " << i;
  }
}

TEST(Adafactor, FactorsAnyArrangementOfAxes) {
  const std::vector<FactoredCase> cases = {
      {"RC", {1, 1}},         {"RC", {3, 5}},
      {"CR", {130, 257}},     {"RC", {20, 9001}},
      {"RC", {20000, 2}},     {"BRC", {3, 17, 33}},
      {"RBC", {17, 3, 33}},   {"RCB", {6, 5, 4}},
      {"CBCR", {3, 2, 4, 9}}, {"RBCC", {9, 2, 3, 4}},
      {"RCR", {3, 20, 7}},    {"BCRB", {2, 5, 6, 3}},
      {"BRC", {1, 64, 64}},   {"CCR", {2, 3, 5}},
      {"BBRC", {2, 2, 4, 4}}, {"RBBC", {4, 2, 2, 8193}},
  };
  for (const FactoredCase& c : cases) {
    SCOPED_TRACE(fmt::format("{} [{}]", c.axes, fmt::join(c.shape, ", ")));
    AdafactorOptions options;
    options.min_dim_size_to_factor = 1;
    // Matrices go by size: the larger axis is COLUMN.
    if (c.axes.size() == 2 && (c.shape[0] > c.shape[1]) == (c.axes[1] == 'C')) {
      expect_like_oracle({c.axes == "RC" ? "CR" : "RC", c.shape}, options);
      continue;
    }
    expect_like_oracle(c, options);
    options.beta1 = 0.9;
    options.weight_decay_rate = 0.01;
    options.clipping_threshold.reset();
    expect_like_oracle(c, options);
    options.clipping_threshold = 0.3;
    options.multiply_by_parameter_scale = false;
    expect_like_oracle(c, options);
  }
}

TEST(Adafactor, KeepsFullMomentsOfTheRest) {
  for (const FactoredCase& c : std::vector<FactoredCase>{{"", {}},
                                                         {"N", {1}},
                                                         {"N", {70001}},
                                                         {"NN", {5, 9000}},
                                                         {"NB", {7, 3}},
                                                         {"BN", {3, 7}},
                                                         {"NBN", {5, 2, 17}},
                                                         {"B", {4}}}) {
    SCOPED_TRACE(fmt::format("{} [{}]", c.axes, fmt::join(c.shape, ", ")));
    AdafactorOptions options;
    options.min_dim_size_to_factor = 1 << 20;
    expect_like_oracle(c, options);
    options.beta1 = 0.5;
    options.step_offset = -2;
    expect_like_oracle(c, options);
  }
}

TEST(Adafactor, HParamMapScalesOnlySomeParameters) {
  AdafactorOptions options;
  options.multiply_by_parameter_scale = HParamMap<bool>({{"^norm/", false}, {"kernel$", true}});
  Problem problem;
  problem.add("norm/scale", {"N"}, {5});
  problem.add("mlp/kernel", {"N"}, {5});
  problem.param(1) = problem.param(0);
  const OptimizerPtr optimizer = adafactor(options);
  auto slots = problem.slots(0);
  slots[1].grad = slots[0].grad;
  const auto before = problem.params();
  optimizer->init(slots);
  optimizer->update({.step = 0, .learning_rate = 0.01f, .gradient_norm = {}}, slots);
  double squares = 0;
  for (float p : before[0]) squares += static_cast<double>(p) * p;
  for (size_t i = 0; i < 5; ++i)
    EXPECT_NEAR(problem.param(1)[i] - before[1][i],
                (problem.param(0)[i] - before[0][i]) * std::sqrt(squares / 5), 1e-7);
  Problem other;
  other.add("logits", {"N"}, {5});
  EXPECT_THROW(optimizer->init(other.slots(0)), Error);
}

TEST(Adafactor, RulesThatDoNotFitAreErrorsThatNameTheParameter) {
  const auto message = [](const AdafactorOptions& options, const std::vector<std::string>& axes,
                          const std::vector<int64_t>& shape) -> std::string {
    Problem problem;
    problem.add("enc/odd", axes, shape);
    try {
      adafactor(options)->init(problem.slots(0));
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kUsage);
      return e.what();
    }
    return "";
  };
  AdafactorOptions by_size, rules, map;
  rules.logical_factor_rules = standard_logical_factor_rules();
  map.factor_map = HParamMap<std::vector<FactorDim>>({{"odd", {FactorDim::kRow}}});
  for (const std::string& text : {message(by_size, {"embed", "layers", "mlp"}, {2, 3, 4}),
                                  message(rules, {"embed", "unheard_of", "mlp"}, {2, 3, 4}),
                                  message(rules, {"embed", "relpos_buckets", "mlp"}, {2, 3, 4}),
                                  message(map, {"embed", "layers", "mlp"}, {2, 3, 4})})
    EXPECT_NE(text.find("enc/odd"), std::string::npos) << text;
  EXPECT_EQ(message(rules, {"embed", "layers", "mlp"}, {2, 3, 4}), "");
  EXPECT_THROW(adafactor({.factored = false, .factor_map = map.factor_map}), Error);
}

/// Runs `optimizer` three steps with a number of threads; parameters and state at the end.
std::vector<std::vector<float>> run(const OptimizerPtr& optimizer, int threads) {
  const int before = omp_get_max_threads();
  testing::use_threads(threads);
  Problem problem;
  problem.add("a/kernel", {"embed", "mlp"}, {300, 700});
  problem.add("b/kernel", {"embed", "layers", "mlp"}, {40, 3, 90});
  problem.add("c/scale", {"embed"}, {100003});
  problem.add("d/scale", {"layer_norm_scale"}, {0});
  optimizer->init(problem.slots(0));
  for (uint32_t t = 0; t < 3; ++t)
    optimizer->update({.step = t, .learning_rate = 0.01f, .gradient_norm = {}}, problem.slots(t));
  testing::use_threads(before);
  auto result = problem.params();
  for (const StateArray& array : optimizer->state())
    if (array.view.dtype == DType::f32)
      result.emplace_back(array.view.data<float>(),
                          array.view.data<float>() + array.view.elements());
  return result;
}

/// One of each, fused and not.
std::vector<std::pair<const char*, std::function<OptimizerPtr()>>> every_optimizer() {
  const Schedule rate = [](int64_t step) { return 0.01f / static_cast<float>(1 + step); };
  return {
      {"adafactor",
       [] { return adafactor({.logical_factor_rules = standard_logical_factor_rules()}); }},
      {"adafactor, momentum, global norm",
       [] {
         AdafactorOptions o;
         o.beta1 = 0.9;
         o.global_norm_clip_threshold = 1.0;
         o.logical_factor_rules = standard_logical_factor_rules();
         return adafactor(o);
       }},
      {"adamw, clipped",
       [rate] {
         return optax_optimizer(chain({clip_by_global_norm(1.0), adamw(rate)}));
       }},
      {"adam, Nesterov", [] { return optax_optimizer(adam(1e-3, {.nesterov = true})); }},
      {"lion", [rate] { return optax_optimizer(lion(rate)); }},
      {"sgd", [rate] { return optax_optimizer(sgd(rate)); }},
      {"sgd, Nesterov",
       [] { return optax_optimizer(sgd(0.1, {.momentum = 0.9, .nesterov = true})); }},
      {"clip after adamw",
       [rate] {
         return optax_optimizer(chain({adamw(rate), clip(1e-4)}));
       }},
      {"multi",
       [rate] {
         return multi_optimizer(
             {{matching("^/a/"), optax_optimizer(adamw(rate))},
              {matching("^/b/"),
               adafactor({.logical_factor_rules = standard_logical_factor_rules()})}});
       }},
  };
}

TEST(Optimizers, DoNotDependOnTheNumberOfThreads) {
  for (const auto& [name, make] : every_optimizer()) {
    const auto one = run(make(), 1), two = run(make(), 2), three = run(make(), 3);
    EXPECT_EQ(one, two) << name;
    EXPECT_EQ(one, three) << name;
  }
}

TEST(Optimizers, GoOnFromARestoredStateAsIfNeverStopped) {
  for (const auto& [name, make] : every_optimizer()) {
    SCOPED_TRACE(name);
    Problem straight, resumed;
    for (Problem* p : {&straight, &resumed}) {
      p->add("a/kernel", {"embed", "mlp"}, {130, 140});
      p->add("b/kernel", {"embed", "layers", "mlp"}, {4, 3, 9});
    }
    const OptimizerPtr first = make(), second = make();
    first->init(straight.slots(0));
    for (uint32_t t = 0; t < 2; ++t)
      first->update({.step = t, .learning_rate = 0.01f, .gradient_norm = {}}, straight.slots(t));
    second->init(resumed.slots(0));
    for (size_t i = 0; i < 2; ++i) resumed.param(i) = straight.param(i);
    const auto from = first->state(), to = second->state();
    ASSERT_EQ(from.size(), to.size());
    for (size_t i = 0; i < from.size(); ++i) {
      ASSERT_EQ(from[i].name, to[i].name);
      ASSERT_EQ(from[i].axes.size(), static_cast<size_t>(from[i].view.rank));
      std::memcpy(to[i].view.pointer, from[i].view.pointer,
                  static_cast<size_t>(to[i].view.elements() * size_of(to[i].view.dtype)));
    }
    for (uint32_t t = 2; t < 4; ++t) {
      first->update({.step = t, .learning_rate = 0.01f, .gradient_norm = {}}, straight.slots(t));
      second->update({.step = t, .learning_rate = 0.01f, .gradient_norm = {}}, resumed.slots(t));
    }
    EXPECT_EQ(straight.params(), resumed.params());
  }
}

TEST(Optimizers, AnAbsentGradientIsZero) {
  for (const auto& [name, make] : every_optimizer()) {
    SCOPED_TRACE(name);
    Problem absent, zero;
    for (Problem* p : {&absent, &zero}) {
      p->add("a/kernel", {"embed", "mlp"}, {130, 140});
      p->add("b/scale", {"embed"}, {7});
    }
    const OptimizerPtr first = make(), second = make();
    first->init(absent.slots(0));
    second->init(zero.slots(0));
    for (uint32_t t = 0; t < 2; ++t) {
      auto without = absent.slots(t), with = zero.slots(t);
      if (t == 1) {
        without[0].grad = View::none();
        std::fill_n(with[0].grad.data<float>(), with[0].grad.elements(), 0.0f);
      }
      first->update({.step = t, .learning_rate = 0.01f, .gradient_norm = {}}, without);
      second->update({.step = t, .learning_rate = 0.01f, .gradient_norm = {}}, with);
    }
    EXPECT_EQ(absent.params(), zero.params());
  }
}

/// One number through each rule, in double.
TEST(Optax, UpdatesAreThoseOfTheFormulas) {
  for (int64_t n : {1, 3, 15, 16, 17, 100}) {
    for (const bool nesterov : {false, true}) {
      Problem problem;
      problem.add("a/kernel", {"embed"}, {n});
      const double b1 = 0.8, b2 = 0.95, eps = 1e-3, eps_root = 1e-4, decay = 0.1, rate = 0.02;
      const OptimizerPtr optimizer = optax_optimizer(
          chain({clip(0.15), adamw(rate, {b1, b2, eps, eps_root, decay, nesterov})}));
      optimizer->init(problem.slots(0));
      const auto size = static_cast<size_t>(n);
      std::vector<double> p(problem.param(0).begin(), problem.param(0).end()), mu(size), nu(size);
      for (uint32_t t = 0; t < 3; ++t) {
        const auto slots = problem.slots(t);
        const double used = t + 1.0;
        for (size_t i = 0; i < size; ++i) {
          const double g =
              std::clamp<double>(static_cast<double>(slots[0].grad.data<float>()[i]), -0.15, 0.15);
          mu[i] = b1 * mu[i] + (1 - b1) * g;
          nu[i] = b2 * nu[i] + (1 - b2) * g * g;
          double top = mu[i] / (1 - std::pow(b1, used));
          if (nesterov)
            top =
                b1 * mu[i] / (1 - std::pow(b1, used + 1)) + (1 - b1) * g / (1 - std::pow(b1, used));
          const double bottom = std::sqrt(nu[i] / (1 - std::pow(b2, used)) + eps_root) + eps;
          p[i] -= rate * (top / bottom + decay * p[i]);
        }
        optimizer->update({.step = t, .learning_rate = 0, .gradient_norm = {}}, slots);
        for (size_t i = 0; i < size; ++i)
          ASSERT_NEAR(problem.param(0)[i], p[i], 1e-6) << "n " << n << " element " << i;
      }
    }
  }
}

TEST(Optax, ClippingByTheNormGivenIsThatByTheNormMeasured) {
  Problem a, b;
  for (Problem* p : {&a, &b}) p->add("a/kernel", {"embed", "mlp"}, {50, 60});
  const OptimizerPtr first = optax_optimizer(chain({clip_by_global_norm(0.01), sgd(1.0)}));
  const OptimizerPtr second = optax_optimizer(chain({clip_by_global_norm(0.01), sgd(1.0)}));
  const auto before = a.params();
  first->init(a.slots(0));
  second->init(b.slots(0));
  const auto slots = b.slots(0);
  first->update({}, a.slots(0));
  second->update({.step = 0, .learning_rate = 0, .gradient_norm = check_gradients(slots).norm},
                 slots);
  EXPECT_EQ(a.params(), b.params());
  double moved = 0;
  for (size_t i = 0; i < before[0].size(); ++i)
    moved += std::pow(static_cast<double>(a.param(0)[i]) - before[0][i], 2);
  EXPECT_NEAR(std::sqrt(moved), 0.01, 1e-5);
}

TEST(MultiOptimizer, FreezesWhatNoGroupMatches) {
  Problem problem;
  problem.add("encoder/kernel", {"embed"}, {40});
  problem.add("embedding", {"embed"}, {40});
  const auto before = problem.params();
  const OptimizerPtr optimizer =
      multi_optimizer({{matching("^/encoder/"), optax_optimizer(sgd(0.1))}});
  optimizer->init(problem.slots(0));
  optimizer->update({}, problem.slots(0));
  EXPECT_NE(problem.params()[0], before[0]);
  EXPECT_EQ(problem.params()[1], before[1]);
  EXPECT_THROW(
      multi_optimizer({{matching("encoder"), adafactor()}, {matching("kernel"), adafactor()}})
          ->init(problem.slots(0)),
      Error);
  EXPECT_THROW(matching("(unclosed"), Error);
  try {
    multi_optimizer({{matching("^/encoder/"), adafactor()}, {matching("^/encodr/"), adafactor()}})
        ->init(problem.slots(0));
    FAIL() << "a group without parameters is no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("traversals_and_optimizers[1] matches none of the 2"),
              std::string::npos)
        << error.what();
  }
}

TEST(Gradients, NormAndTheFirstBadTensor) {
  Problem problem;
  problem.add("a/kernel", {"embed", "mlp"}, {300, 700});
  problem.add("b/scale", {"embed"}, {5});
  problem.add("c/scale", {"embed"}, {100001});
  auto slots = problem.slots(0);
  double squares = 0;
  for (const ParamSlot& slot : slots)
    for (int64_t i = 0; i < slot.grad.elements(); ++i)
      squares += std::pow(static_cast<double>(slot.grad.data<float>()[i]), 2);
  const GradientCheck good = check_gradients(slots);
  EXPECT_TRUE(good.all_finite);
  EXPECT_NEAR(good.norm, std::sqrt(squares), 1e-6 * std::sqrt(squares));
  EXPECT_NEAR(good.squares[0] + good.squares[1] + good.squares[2], squares, 1e-6 * squares);

  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()})
    for (const int64_t place : {int64_t{0}, int64_t{63}, int64_t{99999}, int64_t{100000}}) {
      slots = problem.slots(0);
      slots[2].grad.data<float>()[place] = bad;
      const GradientCheck check = check_gradients(slots);
      EXPECT_FALSE(check.all_finite) << bad << " at " << place;
      EXPECT_EQ(check.first_bad, "c/scale");
      EXPECT_FALSE(std::isfinite(check.norm));
    }
  // Large but finite: squares that float32 cannot hold.
  slots = problem.slots(0);
  slots[0].grad.data<float>()[7] = 1e30f;
  EXPECT_TRUE(check_gradients(slots).all_finite);
  EXPECT_NEAR(check_gradients(slots).norm, 1e30, 1e24);
  slots[0].grad = View::none();
  EXPECT_TRUE(check_gradients(slots).all_finite);
  EXPECT_EQ(check_gradients({}).norm, 0);
}

/// Marks of three arrays, the second with a gradient of `size` at its last element, after an update.
std::vector<int32_t> marks_after(const OptimizerPtr& optimizer, float rate, float size) {
  Problem problem;
  problem.add("a/kernel", {"embed", "mlp"}, {300, 700});
  problem.add("b/kernel", {"embed", "mlp"}, {130, 133});
  problem.add("c/scale", {"embed"}, {5});
  std::vector<int32_t> marks(3);
  auto slots = problem.slots(0);
  for (size_t i = 0; i < slots.size(); ++i) slots[i].not_finite = &marks[i];
  if (size != 0) slots[1].grad.data<float>()[130 * 133 - 1] = size;
  optimizer->init(slots);
  optimizer->update({.step = 0, .learning_rate = rate, .gradient_norm = 1.0}, slots);
  return marks;
}

TEST(NotFinite, AnUpdateMarksTheParametersThatItRuins) {
  using Marks = std::vector<int32_t>;
  const Marks none{0, 0, 0}, all{1, 1, 1}, second{0, 1, 0};
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const double rate : {0.01, 1e39}) {
    const Marks want = rate < 1 ? none : all;
    EXPECT_EQ(marks_after(optax_optimizer(adamw(rate)), 0, 0), want);
    EXPECT_EQ(marks_after(optax_optimizer(lion(rate)), 0, 0), want);
    EXPECT_EQ(marks_after(optax_optimizer(sgd(rate)), 0, 0), want);
    EXPECT_EQ(marks_after(optax_optimizer(sgd(rate, {.momentum = 0.9})), 0, 0), want);
    // A chain that no kernel fuses.
    EXPECT_EQ(marks_after(optax_optimizer(chain({scale(2.0), adam(rate)})), 0, 0), want);
    const float f = rate < 1 ? 0.01f : kInfinity;
    EXPECT_EQ(marks_after(adafactor({.factored = false}), f, 0), want);
    EXPECT_EQ(marks_after(adafactor({.beta1 = 0.9, .min_dim_size_to_factor = 1}), f, 0), want);
  }
  // The square of a finite gradient is not: the parameter stays finite, its state does not.
  EXPECT_EQ(marks_after(optax_optimizer(adamw(0.01)), 0, 1e25f), second);
  EXPECT_EQ(marks_after(optax_optimizer(chain({scale(2.0), adam(0.01)})), 0, 1e25f), second);
  EXPECT_EQ(marks_after(adafactor({.factored = false}), 0.01f, 1e25f), second);
  EXPECT_EQ(marks_after(adafactor({.min_dim_size_to_factor = 1}), 0.01f, 1e25f), second);
}

}  // namespace
}  // namespace quintet
