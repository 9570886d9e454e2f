#include "runtime/trainer/fp8_state.h"

#include <cmath>

#include "kernels/gpu/gpu_kernels.h"
#include "kernels/optimizers/gpu_arrays.h"
#include "runtime/abstract/step_clock.h"
#include "runtime/execution/rank_sums.h"
#include "runtime/mesh/sharding.h"
#include "runtime/profile/profile.h"

namespace quintet {

Fp8State::Fp8State(Parameters& parameters, const Fp8Recipe& recipe) {
  for (ParamInfo& info : parameters.all())
    if (info.fp8 && !recipe.current) layers_.push_back(&info);
  if (layers_.empty()) return;
  const int64_t count = std::ssize(layers_);
  scaling_ = Tensor({{{"fp8_layers", count}, {"fp8_scaling", kFp8ScalingFloats}}, DType::f32});
  scaling_.count_as(MemoryKind::kOptimizer);
  for (int64_t i = 0; i < count; ++i) {
    ParamInfo& info = *layers_[static_cast<size_t>(i)];
    info.fp8->scaling = scaling_;
    info.fp8->layer = i;
    Tensor& weights = weights_.emplace_back();
    const auto is_sharded = [](const ParamInfo* kernel) {
      return kernel->used().layout().sharded();
    };
    // Of a kernel that is gathered for each product there is nothing to cast before.
    if (fuses_casts(info) && std::ranges::none_of(info.fp8->kernels, is_sharded)) {
      int64_t bytes = 0;
      for (const ParamInfo* kernel : info.fp8->kernels) bytes += 2 * kernel->spec.elements();
      weights = Tensor({{{"fp8_bytes", bytes}}, DType::u8});
      weights.count_as(MemoryKind::kParameters);
    }
    names_.push_back(info.name.substr(0, info.name.rfind('/') + 1));
  }
  const int64_t sizes[] = {count, kFp8Operands, recipe.amax_history_len};
  history_ = zero_state(DType::f32, sizes, Device::current());
  const auto scaled = [&](Float8 format) {
    return static_cast<float>(largest_of(format) * std::pow(2.0, -recipe.margin));
  };
  update_ = {
      .scalings = scalings(),
      .history = history_.floats(),
      .count = count,
      .length = recipe.amax_history_len,
      .most_recent = recipe.most_recent,
      .scaled_max = {scaled(Float8::e4m3), scaled(Float8::e4m3), scaled(recipe.gradient_format)}};
  Fp8Scaling start{};
  for (int i = 0; i < kFp8Operands; ++i) start.scale[i] = start.scale_inv[i].value = 1;
  const std::vector<Fp8Scaling> all(layers_.size(), start);
  scaling_.device().copy_in(scalings(), all.data(), scaling_.bytes());
}

Fp8State::CastWeights::~CastWeights() {
  for (ParamInfo* info : state_.layers_) info->fp8->weights = {};
}

Fp8State::CastWeights::CastWeights(Fp8State& state) : state_(state) {
  std::vector<Fp8Weights> all;
  int64_t numbers = 0;
  for (size_t l = 0; l < state.layers_.size(); ++l) {
    if (state.weights_[l].absent()) continue;
    ParamInfo* info = state.layers_[l];
    Fp8Layers& fp8 = *info->fp8;
    fp8.weights = state.weights_[l];
    const View w = info->used().local();
    Fp8Weights layer{.count = std::ssize(fp8.kernels),
                     .k = w.size(0),
                     .n = w.size(1),
                     .dtype = w.dtype,
                     .bytes = reinterpret_cast<uint8_t*>(fp8.weights.raw()),
                     .scaling = state.scalings() + fp8.layer};
    for (size_t i = 0; i < fp8.kernels.size(); ++i)
      layer.w.at(i) = fp8.kernels[i]->used().local().pointer;
    numbers += layer.count * layer.k * layer.n;
    all.push_back(layer);
  }
  if (all.empty()) return;
  const int64_t bytes = numbers * (size_of(all[0].dtype) + 2);
  const ProfileScope scope("cast_fp8_weights", bytes);
  if (StepClock* clock = ExecutionContext::current().clock)
    clock->op("cast_fp8_weights", {.bytes = static_cast<double>(bytes)});
  Device& device = state.scaling_.device();
  if (!device.is_cpu())
    device.kernels().cast_fp8_weights(all, device.stream());
  else if (device.memory_is_real())
    cast_fp8_weights_cpu(all);
}

void Fp8State::update(const UpdateControl* control) {
  if (empty()) return;
  const auto count = static_cast<size_t>(update_.count * kFp8ScalingFloats);
  if (const Sharding* sharding = ExecutionContext::current().sharding)  // scales are equal already
    max_over_ranks_on_device({&update_.scalings->scale_inv[0].value, count}, sharding->axes());
  Device& device = scaling_.device();
  if (!device.is_cpu())
    device.kernels().update_fp8_scaling(update_, control, device.stream());
  else if (device.memory_is_real())
    update_fp8_scaling_cpu(update_, control);
}

void Fp8State::discard() {
  if (empty()) return;
  Device& device = scaling_.device();
  for (int64_t i = 0; i < update_.count; ++i)
    device.fill(update_.scalings[i].amax, 0, sizeof(Fp8Scaling::amax));
}

std::vector<StateArray> Fp8State::state() const {
  std::vector<StateArray> arrays;
  for (size_t i = 0; i < names_.size(); ++i) {
    const std::string name = std::string(kFp8Prefix) + names_[i];
    const int64_t history[] = {kFp8Operands, update_.length}, scale[] = {kFp8Operands};
    arrays.push_back(
        {name + "amax_history",
         {"fp8_operands", "fp8_history"},
         View::of(update_.history + static_cast<int64_t>(i) * kFp8Operands * update_.length,
                  history),
         history_.device,
         {}});
    arrays.push_back({name + "scale",
                      {"fp8_operands"},
                      View::of(update_.scalings[i].scale, scale),
                      history_.device,
                      {}});
  }
  return arrays;
}

void Fp8State::restored() {
  if (empty()) return;
  Device& device = scaling_.device();
  std::vector<Fp8Scaling> all(names_.size());
  device.copy_out(all.data(), scalings(), scaling_.bytes());
  for (Fp8Scaling& scaling : all)
    for (int i = 0; i < kFp8Operands; ++i) {
      scaling.scale_inv[i].value = 1 / scaling.scale[i];
      scaling.amax[i] = 0;
    }
  device.copy_in(scalings(), all.data(), scaling_.bytes());
}

}  // namespace quintet
