// Adafactor's kernels on a device against the CPU: the same optimizer on both, step after step.

#include "runtime/optim/adafactor/adafactor.h"

#include <cmath>
#include <limits>
#include <span>

#include "kernels/optimizers/adafactor.h"
#include "runtime/abstract/abstract_device.h"
#include "tests/gpu_kernels/on_device.h"

namespace quintet::testing {
namespace {

class AdafactorOnDevice : public DeviceTest {};

using Sizes = std::vector<int64_t>;
struct Shape {
  std::vector<std::string> axes;
  Sizes sizes;
  std::vector<MeshAxes> mesh_axes = {};  // sizes are those of a block then
};

/// Two ranks along each mesh axis, which all hold the same: a sum is so many times one rank's.
class AlikeRanks final : public Reducer {
 public:
  void sum(std::span<double> values, const MeshAxes& axes) override {
    ++sums;
    for (double& value : values) value = std::ldexp(value, static_cast<int>(axes.size()));
  }
  void max(std::span<double>, const MeshAxes&) override {}
  void sum_on_device(std::span<double> values, const MeshAxes& axes) override {
    exchanged.emplace_back(values.size(), axes);
    if (abstract) return;
    on_device.push_back(values);
    std::vector<double> host(values.size());
    Device& device = Device::current();
    device.copy_out(host.data(), values.data(), static_cast<int64_t>(values.size_bytes()));
    for (double value : host) largest = std::max(largest, std::abs(value));
    sum(host, axes);
    device.copy_in(values.data(), host.data(), static_cast<int64_t>(values.size_bytes()));
  }
  bool counts(const MeshAxes&, const MeshAxes&) const override { return true; }
  bool is_abstract() const override { return abstract; }
  /// All that it has summed on the device.
  void spoil() {
    for (const std::span<double> values : on_device) {
      const std::vector<double> host(values.size(), 1e30);
      Device::current().copy_in(values.data(), host.data(),
                                static_cast<int64_t>(values.size_bytes()));
    }
  }
  bool abstract = false;
  int sums = 0;
  double largest = 0;                                  // of a rank's
  std::vector<std::pair<size_t, MeshAxes>> exchanged;  // numbers on the device, axes
  std::vector<std::span<double>> on_device;
};

size_t elements(const Sizes& sizes) {
  size_t n = 1;
  for (int64_t s : sizes) n *= static_cast<size_t>(s);
  return n;
}

/// The same parameters for two optimizers of the same options, one on the CPU.
class Pair {
 public:
  Pair(Device& device, const AdafactorOptions& options, const std::vector<Shape>& shapes, int shift)
      : device_(device), shapes_(shapes), marks_(shapes.size()), marks_on_(device, marks_) {
    Device::use(Device::cpu());
    on_cpu_ = adafactor(options);
    Device::use(device);
    on_device_ = adafactor(options);
    for (size_t i = 0; i < shapes.size(); ++i) {
      const size_t n = elements(shapes[i].sizes);
      params_.push_back(normals(n, i, 0.1));
      gradients_.emplace_back(n);
    }
    for (const auto& p : params_) {
      params_on_.emplace_back(device, p, shift);
      copies_on_.emplace_back(device, std::vector<bfloat16>(p.size()), shift);
      gradients_on_.emplace_back(device, p, shift);
    }
    on_device_->init(slots(true));
    Device::use(Device::cpu());
    on_cpu_->init(slots(false));
  }
  ~Pair() { Device::use(device_); }

  /// One step with fresh gradients; `spoil` may change them.
  template <typename Spoil>
  void step(int64_t number, const Spoil& spoil) {
    gradients_on_.clear();
    for (size_t i = 0; i < gradients_.size(); ++i) {
      gradients_[i] = normals(gradients_[i].size(), 100 * static_cast<uint64_t>(number) + i);
      spoil(i, gradients_[i]);
      gradients_on_.emplace_back(device_, gradients_[i], 0);
    }
    UpdateArgs args{.step = number, .learning_rate = 0.05f, .reducer = &ranks_of_cpu_};
    Device::use(Device::cpu());
    on_cpu_->update(args, slots(false));
    Device::use(device_);
    args.reducer = &ranks_of_device_;
    args.params_unwritten = params_unwritten;
    on_device_->update(args, slots(true));
  }
  /// One whose gradients are not finite.
  void skipped_step(int64_t number) {
    const OnDevice<UpdateControl> control(device_, {{.skip = 1}});
    AlikeRanks ranks;  // which are not to be counted
    on_device_->update({.step = number,
                        .learning_rate = 0.05f,
                        .reducer = &ranks,
                        .control = control.data(),
                        .params_unwritten = params_unwritten},
                       slots(true));
    device_.synchronize();
  }
  /// Parameter i, not by an optimizer.
  void double_param(size_t i) {
    for (float& p : params_[i]) p *= 2;
    device_.copy_in(params_on_[i].data(), params_[i].data(), params_on_[i].data_bytes());
  }
  bool params_unwritten = false;  // as UpdateArgs
  AlikeRanks& ranks() { return ranks_of_device_; }
  OptimizerPtr on_device() { return on_device_; }
  std::vector<ParamSlot> slots_on_device() { return slots(true); }
  int sums_over_ranks() const { return ranks_of_device_.sums; }
  /// ParamSlot::not_finite, the same on both.
  std::vector<int32_t> marks() {
    EXPECT_EQ(marks_on_.back(), marks_);
    return marks_;
  }
  /// Parameters and state on the device.
  std::vector<std::vector<float>> results() {
    std::vector<std::vector<float>> results;
    for (auto& param : params_on_) results.push_back(param.back());
    for (const auto& state : on_device_->state()) {
      results.emplace_back(static_cast<size_t>(state.view.elements()));
      device_.copy_out(results.back().data(), state.view.pointer,
                       static_cast<int64_t>(results.back().size() * sizeof(float)));
    }
    return results;
  }
  void expect_equal() {
    for (size_t i = 0; i < params_.size(); ++i) {
      const std::vector<float> now = params_on_[i].back();
      expect_near(now, params_[i], 2e-6, 0.1, fmt::format("param {}", i));
      const auto copy = copies_on_[i].back();
      for (size_t k = 0; k < now.size(); ++k)
        ASSERT_EQ(copy[k].bits, bfloat16(now[k]).bits) << "copy of param " << i;
    }
    const auto want = on_cpu_->state(), got = on_device_->state();
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      const auto n = static_cast<size_t>(want[i].view.elements());
      std::vector<float> values(n);
      device_.copy_out(values.data(), got[i].view.pointer, static_cast<int64_t>(n * sizeof(float)));
      const float* from = want[i].view.data<const float>();
      expect_near(values, {from, from + n}, 2e-6, want[i].name.ends_with("/m") ? 1e-2 : 1e-6,
                  want[i].name);
    }
  }

 private:
  std::vector<ParamSlot> slots(bool on) {
    std::vector<ParamSlot> slots;
    for (size_t i = 0; i < shapes_.size(); ++i) {
      ParamSlot slot;
      slot.name = fmt::format("p{}", i);
      for (size_t a = 0; a < shapes_[i].axes.size(); ++a)
        slot.axes.push_back({shapes_[i].axes[a], shapes_[i].sizes[a]});
      slot.param =
          on ? params_on_[i].view(shapes_[i].sizes) : View::of(params_[i].data(), shapes_[i].sizes);
      slot.grad = on ? gradients_on_[i].view(shapes_[i].sizes)
                     : View::of(gradients_[i].data(), shapes_[i].sizes);
      if (on) slot.copy = copies_on_[i].view(shapes_[i].sizes);
      slot.mesh_axes = shapes_[i].mesh_axes;
      for (size_t a = 0; a < slot.mesh_axes.size(); ++a)
        for (View* view : {&slot.param, &slot.grad}) view->global[a] <<= slot.mesh_axes[a].size();
      slot.not_finite = on ? marks_on_.data() + i : &marks_[i];
      slots.push_back(slot);
    }
    return slots;
  }
  Device& device_;
  std::vector<Shape> shapes_;
  OptimizerPtr on_cpu_, on_device_;
  AlikeRanks ranks_of_cpu_, ranks_of_device_;
  std::vector<std::vector<float>> params_, gradients_;
  std::vector<OnDevice<float>> params_on_, gradients_on_;
  std::vector<OnDevice<bfloat16>> copies_on_;
  std::vector<int32_t> marks_;
  OnDevice<int32_t> marks_on_;
};

void no_spoil(size_t, std::vector<float>&) {}

/// Tiles of 64 lines by 128 elements of the arrays of these tests, whose lines are their last axis.
int64_t tiles_of(const Shape& shape) {
  const auto up = [](int64_t n, int64_t by) { return (n + by - 1) / by; };
  if (shape.sizes.size() == 1) return up(up(shape.sizes[0], 1024), 64) * 8;
  const int64_t columns =
      shape.axes.back() == "kv" ? shape.sizes[1] * shape.sizes[2] : shape.sizes.back();
  int64_t batches = 1, members = 1;
  for (size_t i = 0; i + 1 < shape.sizes.size(); ++i)
    if (shape.axes[i] == "layers" || shape.axes[i] == shape.axes.back())
      batches *= shape.sizes[i];
    else if (shape.axes.back() != "kv" || i == 0)
      members *= shape.sizes[i];
  return batches * up(members, 64) * up(columns, 128);
}

/// Two steps of both.
void compare(Device& device, const AdafactorOptions& options, const std::vector<Shape>& shapes) {
  for (int shift : {0, 1}) {
    Pair pair(device, options, shapes, shift);
    for (int64_t step = 0; step < 2; ++step) pair.step(step, no_spoil);
    pair.expect_equal();
  }
}

/// Matrices on both sides of the size from which they are factored, rows along and across.
std::vector<Shape> matrices() {
  return {{{"embed", "mlp"}, {130, 300}},
          {{"vocab", "embed"}, {517, 128}},
          {{"embed", "joined_kv"}, {128, 128}},
          {{"heads", "relpos_buckets"}, {4, 32}},
          {{"embed"}, {77}},
          {{"embed"}, {2500}},
          {{"embed", "mlp"}, {3, 1}}};
}

const MeshAxes data{"data"}, model{"model"}, two_axes{"data", "model"}, none;

/// Rows or columns sharded, which lie along lines or across them; larger than two windows; with batches, and
/// of several axes.
std::vector<Shape> sharded_one_way() {
  return {{{"embed", "mlp"}, {130, 300}, {data, none}},
          {{"embed", "mlp"}, {130, 300}, {none, two_axes}},
          {{"vocab", "embed"}, {517, 128}, {model, none}},
          {{"vocab", "embed"}, {517, 128}, {none, data}},
          {{"embed", "mlp"}, {600, 500}, {data, none}},
          {{"embed", "mlp"}, {520, 400}, {none, model}},
          {{"layers", "embed", "mlp"}, {3, 40, 70}, {none, data, none}},
          {{"layers", "embed", "mlp"}, {3, 40, 70}, {data, none, model}},
          {{"embed", "layers", "mlp"}, {70, 3, 40}, {none, none, data}},
          {{"embed", "heads", "kv"}, {66, 5, 16}, {data, none, none}},
          {{"heads", "kv", "embed"}, {5, 16, 66}, {model, none, none}},
          {{"embed", "heads", "embed"}, {6, 70, 10}, {none, model, none}},
          {{"embed", "heads", "embed"}, {6, 70, 10}, {data, none, none}},
          {{"heads", "relpos_buckets"}, {4, 32}, {model, none}},
          {{"embed"}, {2500}, {data}}};
}

TEST_F(AdafactorOnDevice, IsThatOfTheCpu) {
  // Of sm_86 a block holds one tile, and of a window only half of the blocks do.
  on_every_schedule([&] { compare(device(), {}, matrices()); }, {80, 86, 90});
}

// Bit for bit: with other windows, and on sm_86 a grid of 6 blocks, not 8.
TEST_F(AdafactorOnDevice, DoesNotDependOnTheGrid) {
  std::vector<Shape> shapes = matrices();
  shapes.push_back({{"embed", "mlp"}, {700, 600}});
  for (const Shape& shape : sharded_one_way()) shapes.push_back(shape);
  AdafactorOptions options;
  options.logical_factor_rules = standard_logical_factor_rules();
  std::vector<std::vector<float>> of_first;
  for (const int sm : {90, 86, 80}) {
    emulated::simt::emulator::set_sm(sm);
    Pair pair(device(), options, shapes, 0);
    for (int64_t step = 0; step < 2; ++step) pair.step(step, no_spoil);
    if (of_first.empty()) of_first = pair.results();
    EXPECT_TRUE(pair.results() == of_first) << "sm_" << sm;
  }
  emulated::simt::emulator::set_sm(90);
}

// Of more than two windows: nothing else is done between its squares and its update.
TEST_F(AdafactorOnDevice, TakesMatricesLargerThanWindows) {
  const Shape large{{"embed", "mlp"}, {520, 400}}, small{{"embed", "joined_kv"}, {128, 128}};
  on_every_schedule(
      [&] {
        compare(device(), {}, {large, small, small, large, large, small});
      },
      {86, 90});
  compare(device(), {}, {small, large});
}

TEST_F(AdafactorOnDevice, TakesMoreArraysThanALaunchHolds) {
  const Shape matrix{{"embed", "mlp"}, {130, 140}};
  std::vector<Shape> shapes(120, {{"heads", "relpos_buckets"}, {4, 32}});
  shapes.front() = shapes.back() = matrix;
  Pair pair(device(), {}, shapes, 0);
  pair.step(0, no_spoil);
  pair.expect_equal();
}

TEST_F(AdafactorOnDevice, WithEveryOptionIsThatOfTheCpu) {
  AdafactorOptions options;
  options.beta1 = 0.9;
  options.weight_decay_rate = 0.01;
  options.global_norm_clip_threshold = 1.0;
  options.max_parameter_scale = 0.05;
  options.clipping_threshold = 0.5;
  options.min_dim_size_to_factor = 3;
  compare(device(), options, matrices());
  options.clipping_threshold.reset();
  options.multiply_by_parameter_scale = false;
  options.factored = false;
  compare(device(), options, matrices());
}

// Stacked and split axes: batches first, in the middle and last; rows and columns of several axes,
// also with others between them.
TEST_F(AdafactorOnDevice, FactorsByLogicalAxes) {
  AdafactorOptions options;
  options.logical_factor_rules = standard_logical_factor_rules();
  const std::vector<Shape> shapes{{{"layers", "embed", "mlp"}, {3, 40, 70}},
                                  {{"embed", "layers", "mlp"}, {70, 3, 40}},
                                  {{"embed", "mlp", "layers"}, {9, 11, 5}},
                                  {{"embed", "heads", "kv"}, {66, 5, 16}},
                                  {{"heads", "kv", "embed"}, {5, 16, 66}},
                                  {{"layers", "heads", "relpos_buckets"}, {3, 4, 20}},
                                  {{"embed", "heads", "embed"}, {6, 70, 10}},
                                  {{"heads", "embed", "layers", "kv"}, {3, 70, 2, 9}}};
  on_every_schedule([&] { compare(device(), options, shapes); });
}

// Moments that are sharded over other axes than the sums they are made of; arrays that are not factored,
// that have sharded batches alone, and that are not sharded, in one update.
TEST_F(AdafactorOnDevice, ExchangesTheSumsOfShardedArrays) {
  AdafactorOptions options;
  options.logical_factor_rules = standard_logical_factor_rules();
  const std::vector<Shape> shapes{{{"embed", "mlp"}, {130, 300}, {data, model}},
                                  {{"vocab", "embed"}, {150, 140}, {model, data}},
                                  {{"embed", "joined_kv"}, {128, 128}, {none, two_axes}},
                                  {{"embed", "mlp"}, {130, 140}},
                                  {{"heads", "relpos_buckets"}, {4, 32}, {model, none}},
                                  {{"embed"}, {77}, {data}},
                                  {{"layers", "embed", "mlp"}, {3, 40, 70}, {none, data, model}},
                                  {{"layers", "embed", "mlp"}, {3, 40, 70}, {data, none, none}},
                                  {{"embed", "heads", "embed"}, {6, 70, 10}, {none, model, data}}};
  on_every_schedule([&] { compare(device(), options, shapes); });
  options.beta1 = 0.9;
  options.clipping_threshold.reset();
  compare(device(), options, shapes);
  Pair pair(device(), options, shapes, 0);
  pair.step(0, no_spoil);
  EXPECT_EQ(pair.sums_over_ranks(), 6);  // three exchanges, of one to three sets of axes
}

// The squares of the update follow from the one moment that the block has and sums along the other one.
TEST_F(AdafactorOnDevice, ExchangesOnceWhatIsShardedAlongRowsOrColumns) {
  AdafactorOptions options;
  options.logical_factor_rules = standard_logical_factor_rules();
  compare(device(), options, sharded_one_way());
  options.clipping_threshold = 0.3;  // of all of them
  on_every_schedule([&] { compare(device(), options, sharded_one_way()); }, {90});
  options.clipping_threshold.reset();
  options.beta1 = 0.9;
  compare(device(), options, sharded_one_way());
  Pair pair(device(), options, sharded_one_way(), 0);
  pair.step(0, no_spoil);
  EXPECT_EQ(pair.sums_over_ranks(), 3);  // data, model, and both
}

// In number and size, and the memory that they and the squares of parameters take.
TEST_F(AdafactorOnDevice, ExchangesWhatAPlanCounts) {
  AdafactorOptions options;
  options.logical_factor_rules = standard_logical_factor_rules();
  std::vector<Shape> shapes = sharded_one_way();
  shapes.push_back({{"embed", "mlp"}, {130, 300}, {data, model}});
  Pair pair(device(), options, shapes, 0);
  pair.step(0, no_spoil);
  const std::vector<ParamSlot> slots = pair.slots_on_device();
  AbstractDevice abstract;
  const Device::Use use_abstract(abstract);
  const OptimizerPtr planned = adafactor(options);
  planned->init(slots);
  AlikeRanks ranks;
  ranks.abstract = true;
  planned->simulate_sums({.reducer = &ranks, .simulates_gpu = true}, slots);
  EXPECT_EQ(ranks.exchanged, pair.ranks().exchanged);
  int64_t bytes = 0;
  for (const auto& [numbers, axes] : ranks.exchanged) bytes += static_cast<int64_t>(8 * numbers);
  for (const Shape& shape : shapes)  // a square a tile; each has one matrix a batch
    bytes += 4 * tiles_of(shape);
  EXPECT_EQ(planned->update_memory(132).kept, bytes);
  EXPECT_EQ(pair.on_device()->update_memory(132).kept, bytes);
}

TEST_F(AdafactorOnDevice, ExchangesTheSumsOfMoreArraysThanALaunchHolds) {
  std::vector<Shape> shapes(120, {{"heads", "relpos_buckets"}, {4, 32}, {model, none}});
  for (size_t i = 0; i < shapes.size(); i += 24)
    shapes[i] = {{"embed", "mlp"}, {130, 140}, {data, i % 48 == 0 ? model : none}};
  shapes.back() = {{"embed", "mlp"}, {130, 140}, {data, none}};  // in the second table
  Pair pair(device(), {}, shapes, 0);
  pair.step(0, no_spoil);
  pair.expect_equal();
}

// Else what a rank has not written, whatever was in its memory, would double with each update.
TEST_F(AdafactorOnDevice, ExchangesNoSumsThatNobodyWrote) {
  AdafactorOptions options;
  options.logical_factor_rules = standard_logical_factor_rules();
  options.clipping_threshold.reset();
  options.multiply_by_parameter_scale = false;
  std::vector<Shape> shapes = sharded_one_way();
  shapes.push_back({{"embed", "mlp"}, {130, 140}, {data, model}});
  Pair pair(device(), options, shapes, 0);
  for (int64_t step = 0; step < 2; ++step) {
    pair.step(step, no_spoil);
    pair.ranks().spoil();
  }
  pair.expect_equal();
  EXPECT_LT(pair.ranks().largest, 1e30);
}

TEST_F(AdafactorOnDevice, KeepsNumbersThatWouldBecomeNaN) {
  AdafactorOptions options;
  options.skip_nan_updates = true;
  options.clipping_threshold.reset();
  options.multiply_by_parameter_scale = false;
  options.beta1 = 0.9;
  Pair pair(device(), options, matrices(), 0);
  pair.step(0, no_spoil);
  pair.step(1, [](size_t i, std::vector<float>& gradient) {
    if (i % 2 == 0) gradient[gradient.size() / 2] = std::numeric_limits<float>::quiet_NaN();
  });
  pair.step(2, no_spoil);
  pair.expect_equal();
}

TEST_F(AdafactorOnDevice, MarksWhatAnUpdateLeavesNotFinite) {
  for (const bool momentum : {false, true})
    for (const bool factored : {false, true}) {
      AdafactorOptions options;
      options.factored = factored;
      if (momentum) options.beta1 = 0.9;
      Pair pair(device(), options, matrices(), 0);
      const auto spoil = [](size_t i, std::vector<float>& gradient) {
        if (i == 1) gradient.back() = 1e25f;  // its square is too much for the state
      };
      pair.step(0, no_spoil);
      EXPECT_EQ(pair.marks(), (std::vector<int32_t>(7)));
      pair.step(1, spoil);
      EXPECT_EQ(pair.marks(), (std::vector<int32_t>{0, 1, 0, 0, 0, 0, 0}));
    }
}

// The same bits as squares that each update takes itself.
TEST_F(AdafactorOnDevice, KeepsTheSquaresOfParameters) {
  AdafactorOptions options;
  options.weight_decay_rate = 0.01;
  const std::vector<Shape> shapes{{{"embed", "mlp"}, {130, 300}},
                                  {{"embed", "mlp"}, {2000, 128}},  // larger than two windows
                                  {{"embed", "mlp"}, {130, 140}, {data, model}},
                                  {{"embed", "mlp"}, {600, 500}, {data, none}},
                                  {{"heads", "relpos_buckets"}, {4, 32}},
                                  {{"embed"}, {2500}}};
  for (const bool clips : {true, false}) {
    if (!clips) options.clipping_threshold.reset();
    const auto results = [&](bool keeps) {
      Pair pair(device(), options, shapes, clips ? 0 : 1);
      const auto step = [&](int64_t number) {
        pair.params_unwritten = keeps;
        pair.step(number, no_spoil);
      };
      step(0), step(1);
      pair.skipped_step(2);
      step(2);
      pair.double_param(1), pair.double_param(4);
      pair.params_unwritten = false;
      pair.skipped_step(3);  // forgets them all the same
      step(3);
      pair.expect_equal();
      return pair.results();
    };
    EXPECT_TRUE(results(true) == results(false));
  }
}

// By a caller that does not say so: what an update has kept is used, and seen to be wrong.
TEST_F(AdafactorOnDevice, RefusesParametersThatOthersHaveWritten) {
  const std::vector<Shape> sharded{{{"embed", "mlp"}, {130, 140}, {data, model}},
                                   {{"embed", "mlp"}, {130, 140}, {data, none}}};
  for (const auto& [shapes, i] :
       {std::pair{matrices(), size_t{0}}, {matrices(), 4}, {sharded, 0}, {sharded, 1}}) {
    // Of elements that are no multiple of 4, too.
    Pair pair(device(), {}, shapes, i == 0 ? 1 : 0);
    pair.step(0, no_spoil);
    pair.double_param(i);
    pair.params_unwritten = true;
    pair.step(1, no_spoil);
    EXPECT_THROW(device().synchronize(), Bug) << i;
    pair.step(2, no_spoil);
    device().synchronize();
  }
}

TEST(AdafactorScratch, IsOfThreeWindowsOrOfAllTiles) {
  const AdafactorShape small = adafactor_shape(
      std::vector<MomentAxisSize>{{MomentAxis::row, 128}, {MomentAxis::column, 128}});
  const AdafactorShape large = adafactor_shape(
      std::vector<MomentAxisSize>{{MomentAxis::row, 1000}, {MomentAxis::column, 4096}});
  const std::vector<AdafactorShape> both{small, large}, three{small, small, small};
  EXPECT_EQ(adafactor_scratch_bytes(both, true, 396), 514 * 800);
  EXPECT_EQ(adafactor_scratch_bytes(both, false, 396), 3 * 512 * 800);
  EXPECT_EQ(adafactor_scratch_bytes(three, false, 396), 3 * 6 * 800);
  EXPECT_EQ(adafactor_scratch_bytes(three, false, 4), 3 * 4 * 800);
  EXPECT_EQ(adafactor_scratch_bytes({}, false, 396), 0);
}

}  // namespace
}  // namespace quintet::testing
