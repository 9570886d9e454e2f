#include "runtime/optim/optax/noise.h"

#include <algorithm>
#include <cmath>

#include "kernels/gpu/gpu_kernels.h"
#include "kernels/random/random.h"
#include "runtime/optim/optax/elementwise.h"

namespace quintet {
namespace {

/// Calls run(offset in the block, element of the global array, length) for the stretches of a block that lie together
/// in the global array.
template <typename Run>
void for_each_run(const View& block, const Run& run) {
  if (block.elements() == 0) return;
  int inner = block.rank;  // axes from here on are whole
  while (inner > 0 && block.sizes[static_cast<size_t>(inner - 1)] ==
                          block.global[static_cast<size_t>(inner - 1)])
    --inner;
  inner = std::max(inner - 1, 0);
  int64_t length = 1;
  for (int axis = inner; axis < block.rank; ++axis) length *= block.size(axis);
  for (int64_t offset = 0; offset < block.elements(); offset += length) {
    int64_t rest = offset / length, element = 0, stride = 1;
    for (int axis = block.rank - 1; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      int64_t index = block.origin[a];
      if (axis < inner) index += rest % block.sizes[a], rest /= block.sizes[a];
      element += index * stride;
      stride *= block.global[a];
    }
    run(offset, element, length);
  }
}

/// A key of the state and standard normal numbers for every parameter, each of a key of its own.
class NormalNoise {
 public:
  void init(std::span<const ParamSlot> params, int64_t seed) {
    const int64_t words[] = {2};
    key_ = zero_state(DType::u32, words, Device::cpu());
    set_key(key_from_seed(seed));
    leaves_.resize(params.size());
    std::vector<std::pair<std::vector<std::string>, size_t>> paths;
    for (size_t i = 0; i < params.size(); ++i) paths.emplace_back(components(params[i].name), i);
    std::ranges::sort(paths);  // JAX's order of the leaves of nested dicts
    for (size_t leaf = 0; leaf < paths.size(); ++leaf) leaves_[paths[leaf].second] = leaf;
  }
  Key key() const {
    const auto* words = key_.view.data<uint32_t>();
    return {words[0], words[1]};
  }
  /// The first of those that the state's key is split into takes its place.
  void next_key() {
    before_ = key();
    set_key(split_at(key(), 0));
  }
  void take_back() { set_key(before_); }
  StateArray state(const std::string& prefix) const {
    return {prefix + "rng_key", {""}, key_.view, key_.device};
  }

  /// For rules::AddNoise; valid until the next call. `key_of`: of a leaf's number.
  template <typename KeyOf>
  std::vector<RuleState> draw(std::span<const ParamSlot> params, const KeyOf& key_of) {
    std::vector<RuleState> states(params.size());
    std::vector<View> views;
    std::vector<Key> keys;
    noise_.resize(params.size());
    for (size_t i = 0; i < params.size(); ++i) {
      if (noise_[i].buffer == nullptr)
        noise_[i] = zero_state_like(params[i].param, Device::current());
      views.push_back(noise_[i].view);
      keys.push_back(key_of(leaves_[i]));
      states[i].first = noise_[i].floats();
    }
    Device& device = Device::current();
    if (device.is_cpu())
      fill(views, keys);
    else
      device.kernels().fill_normals(views, keys, device.stream());
    return states;
  }

 private:
  static std::vector<std::string> components(const std::string& path) {
    std::vector<std::string> names{""};
    for (const char c : path)
      if (c == '/')
        names.emplace_back();
      else
        names.back() += c;
    return names;
  }
  void set_key(Key key) {
    auto* words = key_.view.data<uint32_t>();
    words[0] = key.a, words[1] = key.b;
  }
  static void fill(std::span<const View> views, std::span<const Key> keys) {
    for (size_t i = 0; i < views.size(); ++i) {
      const std::span out(views[i].data<float>(), static_cast<size_t>(views[i].elements()));
      for_each_run(views[i], [&](int64_t offset, int64_t element, int64_t length) {
        fill_normal(keys[i], static_cast<uint64_t>(element),
                    out.subspan(static_cast<size_t>(offset), static_cast<size_t>(length)));
      });
    }
  }

  StateBuffer key_;
  Key before_;                      // the key of the last update
  std::vector<size_t> leaves_;      // of each parameter, in JAX's order
  std::vector<StateBuffer> noise_;  // of each parameter
};

class RunningNoise final : public RunningAs<NoiseOptions> {
 public:
  using RunningAs::RunningAs;

  void init(std::span<const ParamSlot> params) override {
    count_ = host_count();
    noise_.init(params, what().seed);
  }
  void update(Updates& updates) override {
    const auto t = static_cast<float>(++count_.count());
    const float deviation = std::sqrt(f32(what().eta) / std::pow(t, f32(what().gamma)));
    const Key sample = split_at(noise_.key(), 1);
    const auto states =
        noise_.draw(updates.params, [&](size_t leaf) { return split_at(sample, leaf); });
    updates.apply({rules::AddNoise{deviation}}, states);
    noise_.next_key();
  }
  void take_back() override {
    --count_.count();
    noise_.take_back();
  }
  void add_state(const std::string& prefix, std::vector<StateArray>& arrays) const override {
    arrays.push_back(state_of(prefix + "count", count_));
    arrays.push_back(noise_.state(prefix));
  }

 private:
  StateBuffer count_;
  NormalNoise noise_;
};

class RunningPrivateAggregate final : public RunningAs<PrivateAggregateOptions> {
 public:
  using RunningAs::RunningAs;
  static std::optional<double> example_clip(const PrivateAggregateOptions& options) {
    return options.l2_norm_clip;
  }

  void init(std::span<const ParamSlot> params) override { noise_.init(params, what().seed); }
  void update(Updates& updates) override {
    QT_ASSERT(updates.args.examples > 0);
    const auto states =
        noise_.draw(updates.params, [&](size_t leaf) { return split_at(noise_.key(), 1 + leaf); });
    updates.apply({rules::AddNoise{f32(what().l2_norm_clip * what().noise_multiplier)}}, states);
    updates.apply({.use = {.scale = 1.0f / static_cast<float>(updates.args.examples)}});
    noise_.next_key();
  }
  void take_back() override { noise_.take_back(); }
  void add_state(const std::string& prefix, std::vector<StateArray>& arrays) const override {
    arrays.push_back(noise_.state(prefix));
  }

 private:
  NormalNoise noise_;
};

}  // namespace

TransformationPtr add_noise(const NoiseOptions& options) {
  QT_CHECK(options.eta >= 0, "add_noise: eta must be 0 or more, got {}", options.eta);
  return transformation<RunningNoise>(options);
}

TransformationPtr noisy_sgd(const NoisySgdOptions& options) {
  return chain({add_noise(options), scale_by_learning_rate(options.learning_rate)});
}

TransformationPtr differentially_private_aggregate(const PrivateAggregateOptions& o) {
  QT_CHECK(o.l2_norm_clip > 0,
           "differentially_private_aggregate: l2_norm_clip must be positive, got {}",
           o.l2_norm_clip);
  QT_CHECK(o.noise_multiplier >= 0,
           "differentially_private_aggregate: noise_multiplier must be 0 or more, got {}",
           o.noise_multiplier);
  QT_CHECK(std::isfinite(f32(o.l2_norm_clip * o.noise_multiplier)),
           "differentially_private_aggregate: noise of the deviation l2_norm_clip * "
           "noise_multiplier = {} is beyond float32",
           o.l2_norm_clip * o.noise_multiplier);
  return transformation<RunningPrivateAggregate>(o);
}

TransformationPtr dpsgd(const DpsgdOptions& o) {
  return chain({differentially_private_aggregate(o),
                o.momentum ? trace(*o.momentum, o.nesterov) : identity(),
                scale_by_learning_rate(o.learning_rate)});
}

}  // namespace quintet
