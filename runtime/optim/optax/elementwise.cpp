#include "runtime/optim/optax/elementwise.h"

#include <cmath>
#include <limits>

#include "kernels/gpu/gpu_kernels.h"

namespace quintet {

float bias_correction(double beta, int32_t t) {
  return 1.0f / (1.0f - std::pow(f32(beta), static_cast<float>(t)));
}

float decay_of(double beta, DType moment) {
  return moment == DType::bf16 ? static_cast<float>(bfloat16(f32(beta))) : f32(beta);
}

cpu::AdamStep adam_step(const AdamOptions& o, int32_t count, float rate, double decay) {
  const int32_t t = count + 1;
  const float corrected = bias_correction(o.b1, t);
  return {.b1 = decay_of(o.b1, o.mu_dtype),
          .one_minus_b1 = f32(1 - o.b1),
          .b2 = f32(o.b2),
          .one_minus_b2 = f32(1 - o.b2),
          .mu_use = o.nesterov ? f32(o.b1) * bias_correction(o.b1, t + 1) : corrected,
          .gradient_use = o.nesterov ? f32(1 - o.b1) * corrected : 0.0f,
          .nu_use = bias_correction(o.b2, t),
          .eps = f32(o.eps),
          .eps_root = f32(o.eps_root),
          .rate = rate,
          .decay = f32(decay)};
}

cpu::LionStep lion_step(const ScaleByLion& o, float rate, double decay) {
  return {decay_of(o.b1, o.mu_dtype),
          f32(1 - o.b1),
          decay_of(o.b2, o.mu_dtype),
          f32(1 - o.b2),
          rate,
          f32(decay)};
}

TransformationPtr elementwise(Elementwise description) {
  QT_ASSERT(description.slots.size() <= 2);
  return transformation<RunningElementwise>(std::move(description));
}

void ArraysLikeParams::init(std::span<const ParamSlot> params, const StateSlot& slot) {
  *this = ArraysLikeParams();
  slot_ = slot;
  Device& device = Device::current();
  for (const ParamSlot& param : params) {
    names_.push_back(param.name);
    axes_.push_back(names_of(param.axes));
    mesh_axes_.push_back(param.shard_axes());
    buffers_.push_back(zero_state_like(param.param, device, slot.dtype));
    const View& view = buffers_.back().view;
    if (slot.initial == 0 || view.elements() == 0) continue;
    if (device.is_cpu())
      std::fill_n(view.data<float>(), view.elements(), f32(slot.initial));
    else
      device.kernels().fill(view, f32(slot.initial), device.stream());
  }
}

void ArraysLikeParams::add_state(const std::string& prefix, std::vector<StateArray>& arrays) const {
  for (size_t i = 0; i < buffers_.size(); ++i)
    arrays.push_back({prefix + slot_.name + "/" + names_[i], axes_[i], buffers_[i].view,
                      buffers_[i].device, mesh_axes_[i]});
}

void RunningElementwise::init(std::span<const ParamSlot> params) {
  if (what().counts) count_ = host_count();
  slots_.assign(what().slots.size(), {});
  for (size_t s = 0; s < slots_.size(); ++s) slots_[s].init(params, what().slots[s]);
}

void RunningElementwise::rebind(const Transformation& like) {
  RunningAs::rebind(like);
  check_form(what().slots.size() == slots_.size() && what().counts == (count_.buffer != nullptr));
}

void RunningElementwise::update(Updates& updates) {
  if (fuses<Fusable::Identity>() != nullptr) return;
  std::vector<RuleState> states(updates.params.size());
  for (size_t i = 0; i < states.size(); ++i) {
    states[i] = {state(0, i), state(1, i), !has_float_state()};
    if (what().factor) states[i].factor = what().factor(updates.params[i]);
  }
  updates.apply(what().step(count()), states);
  count_up();
}

void RunningElementwise::count_up() {
  if (count_.buffer != nullptr && count_.count() != std::numeric_limits<int32_t>::max())
    ++count_.count();
}

void RunningElementwise::take_back() {
  if (count_.buffer != nullptr) --count_.count();
}

void RunningElementwise::add_state(const std::string& prefix,
                                   std::vector<StateArray>& arrays) const {
  if (count_.buffer != nullptr) arrays.push_back(state_of(prefix + "count", count_));
  for (const ArraysLikeParams& slot : slots_) slot.add_state(prefix, arrays);
}

}  // namespace quintet
