// Every case of fixtures optax/ as its gin text makes it: parameters after 1, 10 and 100 updates and the whole state,
// in one piece, cut over ranks, and gone on with from a checkpoint's state.

#include <barrier>
#include <thread>

#include "runtime/configurables/optimizer_configurables.h"
#include "runtime/gin/config.h"
#include "runtime/optim/optimizer.h"
#include "runtime/optim/schedules.h"
#include "tests/harness/device.h"
#include "tests/harness/fixtures.h"
#include "tests/harness/threads.h"

namespace quintet {
namespace {

using testing::fixture_root;

/// What a gin text binds `name` to.
template <typename T>
T evaluate(const std::string& text, const std::string& name) {
  gin::Registry registry;
  register_optim(registry);
  const gin::Config::Options options;
  gin::Config config(registry, options);
  config.parse_text(text, "case.gin");
  config.finalize();
  return gin::as<T>(config.evaluate(name), {name});
}

struct Golden {
  std::filesystem::path root = fixture_root() / "optax";
  Json cases = Json::read(root / "cases.json");
  HostArrays inputs = read_safetensors(root / "inputs.safetensors");
  int64_t updates = cases["updates"].as_int();
  std::vector<std::string> names;

  Golden() {
    for (const auto& [name, array] : inputs)
      if (name.starts_with("param/")) names.push_back(name.substr(6));
  }
  OptimizerPtr make(const Json& c) const {
    return evaluate<OptimizerPtr>(c["gin"].as_string(), "OPTIMIZER");
  }
};

/// Parameters and the gradients of a step: whole, or the block of a rank that holds every second row of those that have an
/// even number of them.
class Problem {
 public:
  Problem(const Golden& golden, const Json& c, int rank = 0, int ranks = 1)
      : golden_(golden), rank_(rank), ranks_(ranks) {
    for (const Json& step : c["nan"].items()) nan_.push_back(step.as_int());
    examples_ = c["examples"].as_int();
    for (const std::string& name : golden.names)
      params_[name] = block(golden.inputs.at("param/" + name).as<float>(), name);
  }

  /// What an update is told of step `step`.
  UpdateArgs args(int64_t step, Reducer* reducer = nullptr) const {
    return {.step = step, .reducer = reducer, .examples = examples_};
  }
  /// For slots(), if the case has gradients of examples.
  void clip_examples(const Optimizer& optimizer) {
    EXPECT_EQ(optimizer.example_clip().has_value(), examples_ > 0);
    clip_ = optimizer.example_clip().value_or(0);
  }
  std::vector<ParamSlot> slots(int64_t step) {
    std::vector<ParamSlot> slots;
    for (const std::string& name : golden_.names) {
      std::vector<float> whole = gradient(name, step);
      const auto bad = golden_.cases["nan_gradient"].items();
      const auto shape = shape_of(name);
      if (bad[0].as_string() == name && std::ranges::find(nan_, step) != nan_.end())
        whole[static_cast<size_t>(bad[1].as_int() * shape[1] + bad[2].as_int())] =
            std::numeric_limits<float>::quiet_NaN();
      grads_[name] = block(whole, name);
      slots.push_back(slot(name));
    }
    return slots;
  }
  /// Parameters come back from a device after an update, and go to it after the test has changed them.
  void read_params() {
    for (auto& [name, values] : params_)
      if (!device_.is_cpu())
        device_.copy_out(values.data(), memory_.at("param/" + name).get(), bytes_of(values));
  }
  void write_params() {
    for (auto& [name, values] : params_)
      if (!device_.is_cpu())
        device_.copy_in(memory_.at("param/" + name).get(), values.data(), bytes_of(values));
  }
  const std::vector<float>& param(const std::string& name) const { return params_.at(name); }
  std::vector<float>& param(const std::string& name) { return params_.at(name); }
  /// This rank's part of an array like the parameter.
  std::vector<float> block(std::span<const float> whole, const std::string& name) const {
    const auto part = static_cast<std::ptrdiff_t>(whole.size()) / (is_cut(name) ? ranks_ : 1);
    const auto begin = whole.begin() + (is_cut(name) ? rank_ * part : 0);
    return {begin, begin + part};
  }

 private:
  std::span<const float> recorded(const std::string& name, int64_t step) const {
    const HostArray& all = golden_.inputs.at("grad/" + name);
    const auto n = static_cast<size_t>(all.elements() / golden_.updates);
    return std::span(all.as<float>()).subspan(static_cast<size_t>(step % golden_.updates) * n, n);
  }
  /// Of a step, whole: recorded, or the sum of those of examples, each of which is clipped, as a trainer gives it.
  std::vector<float> gradient(const std::string& name, int64_t step) const {
    const auto first = recorded(name, step);
    std::vector<float> sum(first.begin(), first.end());
    if (clip_ == 0) return sum;
    std::ranges::fill(sum, 0.0F);
    for (int64_t i = 0; i < examples_; ++i) {
      double squares = 0;
      for (const std::string& other : golden_.names)
        for (const float x : recorded(other, step + i)) squares += static_cast<double>(x) * x;
      const auto shrink = static_cast<float>(std::max(std::sqrt(squares) / clip_, 1.0));
      const auto gradient = recorded(name, step + i);
      for (size_t j = 0; j < sum.size(); ++j) sum[j] += gradient[j] / shrink;
    }
    return sum;
  }
  std::vector<int64_t> shape_of(const std::string& name) const {
    return golden_.inputs.at("param/" + name).shape;
  }
  bool is_cut(const std::string& name) const {
    const auto shape = shape_of(name);
    return ranks_ > 1 && !shape.empty() && shape[0] % ranks_ == 0;
  }
  ParamSlot slot(const std::string& name) {
    const auto global = shape_of(name);
    auto local = global;
    if (is_cut(name)) local[0] /= ranks_;
    const auto axis_names = golden_.cases["param_axes"][name].as_strings();
    Axes axes;
    for (size_t i = 0; i < global.size(); ++i) axes.push_back({axis_names[i], global[i]});
    ParamSlot slot{name, axes, View::of(place("param/" + name, params_[name], false), local),
                   View::of(place("grad/" + name, grads_[name], true), local)};
    slot.mesh_axes.resize(global.size());
    if (is_cut(name)) {
      slot.mesh_axes[0] = {"data"};
      for (View* view : {&slot.param, &slot.grad}) {
        view->global[0] = global[0];
        view->origin[0] = rank_ * local[0];
      }
    }
    return slot;
  }

  static int64_t bytes_of(const std::vector<float>& values) {
    return static_cast<int64_t>(values.size() * sizeof(float));
  }
  /// Where values are for the optimizer; on a device, a copy from when it is made, or of now.
  float* place(const std::string& key, std::vector<float>& values, bool anew) {
    if (device_.is_cpu()) return values.data();
    Buffer& memory = memory_[key];
    if (memory == nullptr || anew) {
      if (memory == nullptr) memory = device_.memory().allocate(bytes_of(values));
      device_.copy_in(memory.get(), values.data(), bytes_of(values));
    }
    return reinterpret_cast<float*>(memory.get());
  }

  const Golden& golden_;
  int rank_, ranks_;
  Device& device_ = Device::current();
  std::map<std::string, Buffer> memory_;
  std::vector<int64_t> nan_;
  int64_t examples_ = 0;
  double clip_ = 0;
  std::map<std::string, std::vector<float>> params_, grads_;
};

class Comparison {
 public:
  Comparison(const Golden& golden, const std::string& name, const Json& c)
      : want_(read_safetensors(golden.root / (name + ".safetensors"))), atol_(c["atol"]) {}

  void expect_params(const Golden& golden, const Problem& problem, int64_t updates) const {
    for (const std::string& name : golden.names) {
      const std::string key = fmt::format("param/{}/{}", updates, name);
      if (want_.contains(key))
        near(problem.param(name), problem.block(want_.at(key).as<float>(), name), key);
    }
  }

  /// The state is the reference's, array by array.
  void expect_state(Optimizer& optimizer, const Golden& golden, const Problem& problem) const {
    size_t count = 0;
    for (const StateArray& array : optimizer.state()) {
      const std::string key = "state/" + array.name;
      ASSERT_TRUE(want_.contains(key)) << "not in the reference: " << key;
      ++count;
      const HostArray& want = want_.at(key);
      const HostArray got = host_copy(array);
      if (array.view.dtype == DType::f32 || array.view.dtype == DType::bf16) {
        const auto owner = std::ranges::find_if(
            golden.names, [&](const std::string& n) { return array.name.ends_with("/" + n); });
        const auto whole = want.as<float>();
        near(as_floats(got),
             owner == golden.names.end() ? std::vector<float>(whole.begin(), whole.end())
                                         : problem.block(whole, *owner),
             key);
      } else {
        EXPECT_EQ(got.bytes, want.bytes) << key;
      }
    }
    for (const auto& [key, array] : want_)
      if (key.starts_with("state/")) --count;
    EXPECT_EQ(count, 0u) << "the reference has more state";
  }

 private:
  static std::vector<float> as_floats(const HostArray& array) {
    if (array.dtype == DType::f32) return {array.as<float>().begin(), array.as<float>().end()};
    std::vector<float> values;
    for (const bfloat16 x : array.as<bfloat16>()) values.push_back(static_cast<float>(x));
    return values;
  }
  void near(const std::vector<float>& got, const std::vector<float>& want,
            const std::string& key) const {
    ASSERT_EQ(got.size(), want.size()) << key;
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_LE(std::abs(got[i] - want[i]), atol_[key].as_double())
          << key << " element " << i << ": got " << got[i] << ", want " << want[i];
  }
  HostArrays want_;
  Json atol_;
};

/// The arrays are too small for more than one thread.
bool has_fixtures() {
  testing::use_threads(1);
  return std::filesystem::exists(fixture_root() / "optax/cases.json");
}

TEST(Optax, EveryCaseIsTheReferences) {
  if (!has_fixtures()) GTEST_SKIP();
  const Golden golden;
  // The emulator takes a second for four updates of all.
  const int64_t updates = Device::current().is_cpu() ? golden.updates : 10;
  for (const auto& [name, c] : golden.cases["cases"].members()) {
    SCOPED_TRACE(name);
    const Comparison comparison(golden, name, c);
    Problem problem(golden, c);
    const OptimizerPtr optimizer = golden.make(c);
    problem.clip_examples(*optimizer);
    optimizer->init(problem.slots(0));
    EXPECT_EQ(optimizer->takes_not_finite(), !c["nan"].items().empty());
    for (int64_t t = 0; t < updates; ++t) {
      optimizer->update(problem.args(t), problem.slots(t));
      problem.read_params();
      comparison.expect_params(golden, problem, t + 1);
    }
    if (updates == golden.updates) comparison.expect_state(*optimizer, golden, problem);
  }
}

/// Sums over two threads that are ranks.
class TwoRanks {
 public:
  struct Side final : Reducer {
    TwoRanks& both;
    size_t rank;
    Side(TwoRanks& b, size_t r) : both(b), rank(r) {}
    void sum(std::span<double> values, const MeshAxes&) override {
      both.exchange(rank, values, [](double a, double b) { return a + b; });
    }
    void max(std::span<double> values, const MeshAxes&) override {
      both.exchange(rank, values, [](double a, double b) { return std::max(a, b); });
    }
    void sum_on_device(std::span<double> values, const MeshAxes& axes) override {
      sum(values, axes);
    }
    /// Copies are counted by the first.
    bool counts(const MeshAxes& axes, const MeshAxes&) const override {
      return !axes.empty() || rank == 0;
    }
  };

  template <typename Body>
  void run(const Body& body) {
    std::array<std::thread, 2> threads;
    for (size_t rank = 0; rank < 2; ++rank)
      threads[rank] = std::thread([&, rank] {
        testing::use_threads(1);
        Side side(*this, rank);
        body(static_cast<int>(rank), side);
      });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  template <typename Combine>
  void exchange(size_t rank, std::span<double> values, const Combine& combine) {
    sent_[rank].assign(values.begin(), values.end());
    barrier_.arrive_and_wait();
    for (size_t i = 0; i < values.size(); ++i) values[i] = combine(sent_[0][i], sent_[1][i]);
    barrier_.arrive_and_wait();
  }
  std::array<std::vector<double>, 2> sent_;
  std::barrier<> barrier_{2};
};

/// Threads are ranks here, on the CPU.
TEST(Optax, EveryCaseIsTheReferencesOverTwoRanks) {
  if (!has_fixtures()) GTEST_SKIP();
  if (!Device::current().is_cpu()) GTEST_SKIP() << "reads the parameters on the host";
  const Golden golden;
  for (const auto& [name, c] : golden.cases["cases"].members()) {
    SCOPED_TRACE(name);
    const Comparison comparison(golden, name, c);
    TwoRanks().run([&](int rank, Reducer& reducer) {
      Problem problem(golden, c, rank, 2);
      const OptimizerPtr optimizer = golden.make(c);
      problem.clip_examples(*optimizer);
      optimizer->init(problem.slots(0));
      for (int64_t t = 0; t < golden.updates; ++t) {
        optimizer->update(problem.args(t, &reducer), problem.slots(t));
        comparison.expect_params(golden, problem, t + 1);
      }
    });
  }
}

TEST(Optax, EveryCaseGoesOnBitForBit) {
  if (!has_fixtures()) GTEST_SKIP();
  const Golden golden;
  constexpr int64_t kStop = 5, kEnd = 9;
  for (const auto& [name, c] : golden.cases["cases"].members()) {
    SCOPED_TRACE(name);
    Problem straight(golden, c), resumed(golden, c);
    const OptimizerPtr first = golden.make(c), second = golden.make(c);
    straight.clip_examples(*first);
    resumed.clip_examples(*second);
    first->init(straight.slots(0));
    for (int64_t t = 0; t < kStop; ++t) first->update(straight.args(t), straight.slots(t));
    second->init(resumed.slots(0));
    straight.read_params();
    for (const std::string& param : golden.names) resumed.param(param) = straight.param(param);
    resumed.write_params();
    const auto from = first->state(), to = second->state();
    ASSERT_EQ(from.size(), to.size());
    for (size_t i = 0; i < from.size(); ++i) {
      const HostArray saved = host_copy(from[i]);
      to[i].device->copy_in(to[i].view.pointer, saved.bytes.data(),
                            static_cast<int64_t>(saved.bytes.size()));
    }
    for (int64_t t = kStop; t < kEnd; ++t) {
      first->update(straight.args(t), straight.slots(t));
      second->update(resumed.args(t), resumed.slots(t));
    }
    for (Problem* problem : {&straight, &resumed}) problem->read_params();
    for (const std::string& param : golden.names)
      EXPECT_EQ(straight.param(param), resumed.param(param)) << param;
  }
}

TEST(Optax, SchedulesAreTheReferences) {
  if (!has_fixtures()) GTEST_SKIP();
  for (const Json& row : Json::read(fixture_root() / "optax/schedules.json").items()) {
    SCOPED_TRACE(row["gin"].as_string());
    const auto schedule = evaluate<Schedule>(row["gin"].as_string(), "SCHEDULE");
    const auto steps = row["steps"].as_ints();
    const auto want = row["values"].as_doubles();
    for (size_t i = 0; i < steps.size(); ++i)
      EXPECT_NEAR(schedule(steps[i]), want[i], 1e-7 + 2e-6 * std::abs(want[i]))
          << "step " << steps[i];
  }
}

}  // namespace
}  // namespace quintet
