#include "runtime/optim/optax/noise.h"

#include <algorithm>
#include <cmath>

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

class RunningNoise final : public Running {
 public:
  explicit RunningNoise(const NoiseOptions& options) : what_(options) {}

  void init(std::span<const ParamSlot> params) override {
    count_ = host_count();
    const int64_t words[] = {2};
    key_ = zero_state(DType::u32, words, Device::cpu());
    set_key(key_from_seed(what_.seed));
    leaves_.resize(params.size());
    std::vector<std::pair<std::vector<std::string>, size_t>> paths;
    for (size_t i = 0; i < params.size(); ++i) paths.emplace_back(components(params[i].name), i);
    std::ranges::sort(paths);  // JAX's order of the leaves of nested dicts
    for (size_t leaf = 0; leaf < paths.size(); ++leaf) leaves_[paths[leaf].second] = leaf;
  }

  void update(Updates& updates) override {
    before_ = key();
    const auto t = static_cast<float>(++count_.count());
    const float deviation = std::sqrt(f32(what_.eta) / std::pow(t, f32(what_.gamma)));
    const Key sample = split_at(key(), 1);
    std::vector<RuleState> states(updates.params.size());
    noise_.resize(states.size());
    for (size_t i = 0; i < states.size(); ++i) {
      std::vector<float>& noise = noise_[i];
      noise.resize(static_cast<size_t>(updates.params[i].param.elements()));
      const Key leaf = split_at(sample, leaves_[i]);
      for_each_run(updates.params[i].param, [&](int64_t offset, int64_t element, int64_t length) {
        fill_normal(
            leaf, static_cast<uint64_t>(element),
            std::span(noise).subspan(static_cast<size_t>(offset), static_cast<size_t>(length)));
      });
      states[i].first = on_device(i, noise);
    }
    updates.apply({rules::AddNoise{deviation}}, states);
    set_key(split_at(key(), 0));
  }

  void take_back() override {
    --count_.count();
    set_key(before_);
  }
  void add_state(const std::string& prefix, std::vector<StateArray>& arrays) const override {
    arrays.push_back(state_of(prefix + "count", count_));
    arrays.push_back({prefix + "rng_key", {""}, key_.view, key_.device});
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
  Key key() const {
    const auto* words = key_.view.data<uint32_t>();
    return {words[0], words[1]};
  }
  void set_key(Key key) {
    auto* words = key_.view.data<uint32_t>();
    words[0] = key.a, words[1] = key.b;
  }
  /// Drawn by the host in any case: the numbers are the same on all devices.
  float* on_device(size_t i, std::vector<float>& noise) {
    Device& device = Device::current();
    if (device.is_cpu()) return noise.data();
    const auto bytes = static_cast<int64_t>(noise.size() * sizeof(float));
    copies_.resize(leaves_.size());
    if (copies_[i] == nullptr) copies_[i] = device.memory().allocate(std::max<int64_t>(bytes, 1));
    device.copy_in(copies_[i].get(), noise.data(), bytes);
    noise = {};
    return reinterpret_cast<float*>(copies_[i].get());
  }

  const NoiseOptions& what_;
  StateBuffer count_, key_;
  Key before_;                  // the key of the last update
  std::vector<size_t> leaves_;  // of each parameter, in JAX's order
  std::vector<std::vector<float>>
      noise_;  // of each parameter, on a CPU kept: four bytes for each of its numbers
  std::vector<Buffer> copies_;  // of it, in a device's memory
};

}  // namespace

TransformationPtr add_noise(const NoiseOptions& options) {
  QT_CHECK(options.eta >= 0, "add_noise: eta must be 0 or more, got {}", options.eta);
  return transformation<RunningNoise>(options);
}

TransformationPtr noisy_sgd(const NoisySgdOptions& options) {
  return chain({add_noise(options), scale_by_learning_rate(options.learning_rate)});
}

}  // namespace quintet
