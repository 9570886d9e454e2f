// An optimizer in the host's memory: the order of copies, waits and updates, and the bits of an update that overlaps
// nothing, on a device that makes copies as late as the order allows.

#include "runtime/optim/host_mirror.h"

#include <deque>

#include "kernels/random/random.h"
#include "runtime/optim/adafactor/adafactor.h"
#include "runtime/optim/multi_optimizer.h"
#include "runtime/optim/optax/norms.h"
#include "runtime/optim/optax/optax.h"
#include "runtime/optim/state_buffer.h"
#include "tests/harness/device.h"

namespace quintet::testing {
namespace {

using Log = std::vector<std::string>;

class LoggedStream final : public CopyStream {
 public:
  LoggedStream(std::string name, size_t events, Log& log)
      : name_(std::move(name)), events_(events), log_(log) {}
  void copy(void* to, const void* from, int64_t bytes) override {
    copies_.push_back({to, from, static_cast<size_t>(bytes)});
    ++since_event_;
  }
  void record(size_t event) override {
    events_.at(event) = made_ + copies_.size();
    log_.push_back(fmt::format("{} {}: {}", name_, event, std::exchange(since_event_, 0)));
  }
  void wait(size_t event) override {
    log_.push_back(fmt::format("wait {} {}", name_, event));
    make_until(events_.at(event));
  }
  void order() override {
    log_.push_back("order " + name_);
    make_until(made_ + copies_.size());
  }

 private:
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };
  void make_until(size_t count) {
    for (; made_ < count; ++made_, copies_.pop_front())
      std::memcpy(copies_.front().to, copies_.front().from, copies_.front().bytes);
  }
  std::string name_;
  std::vector<size_t> events_;
  Log& log_;
  std::deque<Copy> copies_;
  size_t made_ = 0, since_event_ = 0;
};

/// A device in the host's memory: its first stream of copies is "down", the second "up".
class LoggedDevice final : public Device {
 public:
  std::string kind() const override { return "logged"; }
  std::string description() const override { return "a device that notes copies"; }
  std::span<const Kernel> ops() const override { return {}; }
  const GpuKernels& kernels() const override { throw Bug("it has none"); }
  Memory& memory() override { return Memory::host(); }
  Stream stream() const override { return {}; }
  void copy_in(void* to, const void* host, int64_t bytes) override { copy(to, host, bytes); }
  void copy_out(void* host, const void* from, int64_t bytes) override { copy(host, from, bytes); }
  void copy(void* to, const void* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void copy(const StridedCopy& copy) override { copy_strided_cpu(copy); }
  void fill(void* to, int byte, int64_t bytes) override {
    std::memset(to, byte, static_cast<size_t>(bytes));
  }
  void synchronize() override { log.push_back("synchronize"); }
  Buffer pinned(int64_t bytes) override {
    pinned_bytes += bytes;
    return Memory::host().allocate(bytes);
  }
  std::unique_ptr<CopyStream> copy_stream(size_t events) override {
    return std::make_unique<LoggedStream>(streams++ % 2 == 0 ? "down" : "up", events, log);
  }

  Log log;
  int64_t pinned_bytes = 0;
  int streams = 0;
};

/// Notes its parts, which it may let fail.
class LoggedOptimizer final : public Optimizer {
 public:
  LoggedOptimizer(OptimizerPtr inner, Log& log, size_t fails_at = SIZE_MAX)
      : inner_(std::move(inner)), log_(log), fails_at_(fails_at) {}
  void init(std::span<const ParamSlot> params) override { inner_->init(params); }
  void update(const UpdateArgs& args, std::span<const ParamSlot> params) override {
    inner_->update(args, params);
  }
  bool updates_apart() const override { return inner_->updates_apart(); }
  void update_part(const UpdateArgs& args, std::span<const ParamSlot> params, size_t begin,
                   size_t end) override {
    log_.push_back(fmt::format("update {}-{}", begin, end));
    QT_CHECK(begin != fails_at_, "part {} fails", begin);
    inner_->update_part(args, params, begin, end);
  }
  std::vector<StateArray> state() override { return inner_->state(); }

 private:
  OptimizerPtr inner_;
  Log& log_;
  size_t fails_at_;
};

struct Array {
  std::string name;
  Axes axes;
  StateBuffer param, gradient, copy;
};

/// Parameters in ordinary memory with the gradients of a step, which are bfloat16 numbers; the last has none.
class Problem {
 public:
  Problem(DType gradients, bool has_copies, int arrays = 9) {
    for (int i = 0; i < arrays; ++i) {
      const Axes axes = i % 4 == 3 ? Axes{{"embed", 24}} : Axes{{"embed", 24}, {"mlp", 40 + i}};
      std::vector<int64_t> sizes;
      for (const Axis& axis : axes) sizes.push_back(axis.size);
      Array a{fmt::format("layers_{}/{}", i, i % 4 == 3 ? "scale" : "kernel"),
              axes,
              zero_state(DType::f32, sizes, Device::cpu()),
              zero_state(gradients, sizes, Device::cpu()),
              {}};
      if (has_copies && axes.size() > 1) a.copy = zero_state(DType::bf16, sizes, Device::cpu());
      draw(a, "/param", 0, 0.3f, a.param.view);
      arrays_.push_back(std::move(a));
    }
  }
  std::vector<ParamSlot> slots(uint32_t step) {
    std::vector<ParamSlot> slots;
    for (Array& a : arrays_) {
      draw(a, "/gradient", step, 0.1f, a.gradient.view);
      const bool is_last = &a == &arrays_.back();
      slots.push_back({.name = a.name,
                       .axes = a.axes,
                       .param = a.param.view,
                       .grad = is_last ? View::none() : a.gradient.view,
                       .copy = a.copy.buffer == nullptr ? View::none() : a.copy.view});
    }
    return slots;
  }
  std::map<std::string, std::vector<float>> values() const {
    std::map<std::string, std::vector<float>> all;
    for (const Array& a : arrays_)
      all[a.name] = {a.param.floats(), a.param.floats() + a.param.view.elements()};
    return all;
  }
  void expect_rounded_copies() const {
    for (const Array& a : arrays_)
      for (int64_t i = 0; a.copy.buffer != nullptr && i < a.param.view.elements(); ++i)
        ASSERT_EQ(static_cast<float>(a.copy.view.data<bfloat16>()[i]),
                  static_cast<float>(bfloat16(a.param.floats()[i])))
            << a.name;
  }

 private:
  static void draw(const Array& a, const std::string& of, uint32_t step, float deviation,
                   const View& to) {
    std::vector<float> values(static_cast<size_t>(to.elements()));
    fill_normal(fold_in(key_of_parameter({1, 2}, a.name + of), step), 0, values, deviation);
    for (int64_t i = 0; i < to.elements(); ++i)
      (FloatPointer(to) + i).set(static_cast<float>(bfloat16(values[static_cast<size_t>(i)])));
  }
  std::vector<Array> arrays_;
};

UpdateArgs args_of(uint32_t step) {
  return {.step = step, .learning_rate = 0.01f, .gradient_norm = 3};
}

HostArrays state_of(Optimizer& optimizer) {
  HostArrays all;
  for (const StateArray& array : optimizer.state()) all[array.name] = host_copy(array);
  return all;
}

const std::pair<const char*, std::function<OptimizerPtr()>> kOptimizers[] = {
    {"adafactor",
     [] {
       return adafactor(
           {.beta1 = 0.9, .min_dim_size_to_factor = 16, .global_norm_clip_threshold = 0.5});
     }},
    {"adamw",
     [] {
       return optax_optimizer(chain({clip_by_global_norm(0.5), adamw(1e-2)}));
     }},
    {"lion", [] { return optax_optimizer(lion(1e-2)); }},
    {"momentum", [] { return optax_optimizer(sgd(0.1, {.momentum = 0.9, .nesterov = true})); }},
    // Whose parameters are updated together:
    {"rules",
     [] {
       return optax_optimizer(chain({scale_by_adam({}), scale_by_trust_ratio({}), scale(-0.01)}));
     }},
    {"groups",
     [] {
       return multi_optimizer({{matching("kernel"), adafactor({.min_dim_size_to_factor = 16})},
                               {matching("scale"), optax_optimizer(adamw(1e-2))}});
     }},
};

TEST(HostMirror, GivesTheBitsOfAnUpdateInPlace) {
  for (const auto& [name, make] : kOptimizers)
    for (const DType gradients : {DType::f32, DType::bf16})
      for (const bool masters : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", name, name_of(gradients), masters));
        Problem plain(gradients, false), mirrored(gradients, masters);
        const OptimizerPtr want = make();
        want->init(plain.slots(0));
        LoggedDevice device;
        const OptimizerPtr got = host_mirror(make(), {gradients, masters});
        {
          const Device::Use use(device);
          got->init(mirrored.slots(0));
        }
        for (uint32_t step = 0; step < 4; ++step) {
          want->update(args_of(step), plain.slots(step));
          const Device::Use use(device);
          got->update(args_of(step), mirrored.slots(step));
          EXPECT_EQ(mirrored.values(), plain.values()) << step;
          mirrored.expect_rounded_copies();
        }
        const HostArrays state = state_of(*got);
        for (const auto& [array, values] : state_of(*want))
          EXPECT_EQ(state.at(array).bytes, values.bytes) << array;
      }
}

// Of five arrays, the fourth a vector, each is a group. While one is updated, the next comes and the last one goes.
TEST(HostMirror, UpdatesAGroupWhileOthersTravel) {
  LoggedDevice device;
  const Device::Use use(device);
  Problem problem(DType::f32, true, 5);
  const OptimizerPtr mirror =
      host_mirror(std::make_shared<LoggedOptimizer>(optax_optimizer(adamw(1e-2)), device.log),
                  {.masters_on_host = true});
  mirror->init(problem.slots(0));
  EXPECT_EQ(device.log, Log{});
  mirror->update(args_of(0), problem.slots(0));
  const Log want{"wait up 0",  "down 0: 1", "wait up 1",   "down 1: 1",  "wait down 0",
                 "update 0-1", "up 0: 1",   "wait up 2",   "down 2: 1",  "wait down 1",
                 "update 1-2", "up 1: 1",   "wait up 0",   "down 0: 2",  "wait down 2",
                 "update 2-3", "up 2: 1",   "wait up 1",   "down 1: 0",  "wait down 0",
                 "update 3-4", "up 0: 1",   "wait down 1", "update 4-5", "up 1: 1",
                 "order down", "order up"};
  EXPECT_EQ(device.log, want);
}

TEST(HostMirror, HoldsThreeGroupsOfGradientsAtMost) {
  for (const bool masters : {false, true}) {
    LoggedDevice device;
    const Device::Use use(device);
    Problem problem(DType::bf16, masters, 64);
    const std::vector<ParamSlot> slots = problem.slots(0);
    const HostMirrorOptions options{DType::bf16, masters};
    const auto groups = mirror_groups(slots, options, true);
    int64_t all = 0, largest = 0;
    size_t next = 0;
    for (const MirrorGroup& group : groups) {
      EXPECT_EQ(group.begin, std::exchange(next, group.end));
      all += group.bytes;
      largest = std::max(largest, group.bytes);
    }
    EXPECT_EQ(next, slots.size());
    EXPECT_LE(largest, all / 8);
    const auto elements = 48 * 24 * 40;  // at least
    EXPECT_GE(all, elements * (masters ? 2 : 6));
    host_mirror(optax_optimizer(adamw(1e-2)), options)->init(slots);
    EXPECT_EQ(device.pinned_bytes, pinned_bytes(groups));
    EXPECT_LE(device.pinned_bytes, 3 * all / 8);
    // One whose parameters are updated together has all of them.
    const auto together = mirror_groups(slots, options, false);
    EXPECT_EQ(together.size(), 1);
    EXPECT_EQ(pinned_bytes(together), all);
  }
}

// What was updated before it has arrived, what comes after it is as it was, and nothing is under way.
TEST(HostMirror, AnErrorLeavesNoCopyUnderWay) {
  LoggedDevice device;
  const Device::Use use(device);
  Problem problem(DType::f32, false, 9), plain(DType::f32, false, 9);
  const auto before = problem.values();
  const auto optimizer = [&](size_t fails_at) {
    return host_mirror(
        std::make_shared<LoggedOptimizer>(optax_optimizer(sgd(0.1)), device.log, fails_at), {});
  };
  const OptimizerPtr fails = optimizer(4), works = optimizer(SIZE_MAX);
  fails->init(problem.slots(0));
  EXPECT_THROW(fails->update(args_of(0), problem.slots(0)), Error);
  EXPECT_EQ(Log(device.log.end() - 3, device.log.end()),
            (Log{"update 4-5", "order down", "order up"}));
  works->init(plain.slots(0));
  works->update(args_of(0), plain.slots(0));
  const auto after = plain.values();
  for (const auto& [name, values] : problem.values()) {
    const bool was_updated = name < "layers_4";
    EXPECT_EQ(values, (was_updated ? after : before).at(name)) << name;
  }
}

}  // namespace
}  // namespace quintet::testing
