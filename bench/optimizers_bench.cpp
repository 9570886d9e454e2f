// Milliseconds of one update of T5 1.1 small's 77 million parameters, and the memory traffic that
// makes:
//
//   ninja -C build optimizers_bench && OMP_NUM_THREADS=2 build/tests/optim/optimizers_bench

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/memory/memory.h"
#include "runtime/optim/adafactor/adafactor.h"
#include "runtime/optim/blocks.h"
#include "runtime/optim/gradients.h"
#include "runtime/optim/optax/moments.h"
#include "runtime/optim/optax/optax.h"
#include "runtime/optim/state_buffer.h"

namespace quintet {
namespace {

struct Shape {
  const char* name;
  Axes axes;
  int count;
};

/// The arrays of T5 1.1 small by shape.
std::vector<Shape> t5_1_1_small() {
  const Axis embed{"embed", 512}, joined{"joined_kv", 384}, mlp{"mlp", 1024}, vocab{"vocab", 32128};
  return {{"embedding", {vocab, embed}, 1},
          {"logits", {embed, vocab}, 1},
          {"qkv", {embed, joined}, 72},
          {"out", {joined, embed}, 24},
          {"wi", {embed, mlp}, 32},
          {"wo", {mlp, embed}, 16},
          {"norm", {embed}, 42},
          {"relpos", {{"heads", 6}, {"relpos_buckets", 32}}, 2}};
}

struct Model {
  std::vector<ParamSlot> slots;
  std::vector<StateBuffer> memory;
  double parameters = 0;

  Model() {
    for (const Shape& shape : t5_1_1_small())
      for (int i = 0; i < shape.count; ++i) {
        std::vector<int64_t> sizes;
        for (const Axis& axis : shape.axes) sizes.push_back(axis.size);
        for (int k = 0; k < 2; ++k) {
          memory.push_back(zero_state(DType::f32, sizes, Device::cpu()));
          float* values = memory.back().floats();
          for (int64_t j = 0; j < memory.back().view.elements(); ++j)
            values[j] = 0.01f * static_cast<float>(j % 127 - 63);
        }
        const auto& pair = memory;
        slots.push_back({fmt::format("{}_{}/kernel", shape.name, i), shape.axes,
                         pair[pair.size() - 2].view, pair.back().view});
        parameters += static_cast<double>(pair.back().view.elements());
      }
  }
};

void measure(const char* name, double parameters, double bytes_per_parameter,
             const std::function<void()>& work) {
  std::vector<double> times;
  for (int i = 0; i < 12; ++i) {
    const auto begin = Clock::now();
    work();
    times.push_back(seconds_since(begin));
  }
  std::sort(times.begin(), times.end());
  fmt::print("{:<34} min {:7.1f} ms  median {:7.1f} ms  {:5.1f} GB/s\n", name, 1e3 * times[0],
             1e3 * times[times.size() / 2], 1e-9 * bytes_per_parameter * parameters / times[0]);
}

template <typename Options>
Options with_rate(Options options) {
  options.learning_rate = 1e-3;
  return options;
}

void run() {
  Model model;
  fmt::print("{:.1f} million parameters\n", 1e-6 * model.parameters);
  const auto update = [&](const OptimizerPtr& optimizer) {
    optimizer->init(model.slots);
    return [&model, optimizer, step = int64_t{0}]() mutable {
      optimizer->update({.step = step++, .learning_rate = 1e-3f, .gradient_norm = 1.0},
                        model.slots);
    };
  };
  const float* from = model.slots[0].grad.data<float>();
  float* to = model.slots[0].param.data<float>();
  const auto blocks = cut_into_blocks({model.slots[0].param.elements()});
  measure("memcpy, all threads", static_cast<double>(model.slots[0].param.elements()), 8, [&] {
    for_each_block(blocks.size(), [&](size_t i) {
      std::copy(from + blocks[i].begin, from + blocks[i].end, to + blocks[i].begin);
    });
  });
  measure("check_gradients", model.parameters, 4, [&] { check_gradients(model.slots); });
  measure("adamw, clipped by global norm", model.parameters, 28,
          update(optax_optimizer(chain({clip_by_global_norm(0.5), adamw(1e-3)}))));
  measure("lion", model.parameters, 20, update(optax_optimizer(lion(1e-4))));
  measure("sgd, momentum", model.parameters, 20,
          update(optax_optimizer(sgd(1e-3, {.momentum = 0.9}))));
  measure("rmsprop, three rules", model.parameters, 20,
          update(optax_optimizer(rmsprop(with_rate(RmspropOptions())))));
  measure("radam, three rules", model.parameters, 28,
          update(optax_optimizer(radam(with_rate(WithRate<RadamOptions>())))));
  measure("adafactor, factored", model.parameters, 24,
          update(adafactor({.logical_factor_rules = standard_logical_factor_rules()})));
  measure("adafactor, full moments", model.parameters, 28, update(adafactor({.factored = false})));
}

}  // namespace
}  // namespace quintet

int main() { quintet::run(); }
