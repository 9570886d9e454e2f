#include "runtime/optim/host_mirror.h"

#include <algorithm>

#include "kernels/cpu/convert.h"
#include "kernels/gpu/gpu_kernels.h"
#include "runtime/optim/state_buffer.h"

namespace quintet {
namespace {

class HostMirror final : public Optimizer {
 public:
  HostMirror(OptimizerPtr optimizer, const HostMirrorOptions& options)
      : optimizer_(std::move(optimizer)), options_(options) {}

  void init(std::span<const ParamSlot> params) override {
    params_.clear();
    grads_.clear();
    std::vector<ParamSlot> slots(params.begin(), params.end());
    for (ParamSlot& slot : slots) {
      params_.push_back(is_on_host(slot) ? StateBuffer() : pinned_like(slot.param, DType::f32));
      grads_.push_back(pinned_like(slot.param, options_.gradient_dtype));
      if (!is_on_host(slot)) slot.param = params_.back().view;
    }
    const Device::Use on_cpu(Device::cpu());
    optimizer_->init(slots);
  }

  void update(const UpdateArgs& args, std::span<const ParamSlot> params) override {
    QT_ASSERT(params.size() == params_.size());
    Device& device = Device::current();
    std::vector<ParamSlot> slots(params.begin(), params.end());
    std::vector<int32_t> marks(slots.size());
    for (size_t i = 0; i < slots.size(); ++i) {
      if (!is_on_host(params[i])) copy(device, params[i].param, params_[i].view);
      slots[i].param = is_on_host(params[i]) ? params[i].param : params_[i].view;
      slots[i].copy = View::none();
      slots[i].not_finite = &marks[i];
      if (slots[i].grad.absent()) continue;
      copy(device, params[i].grad, grads_[i].view);
      slots[i].grad = grads_[i].view;
    }
    device.synchronize();  // once for all arrays
    {
      const Device::Use on_cpu(Device::cpu());
      optimizer_->update(args, slots);
    }
    std::vector<View> updated,
        rounded;  // what is copied is not waited for: the next step's work is behind it
    for (size_t i = 0; i < slots.size(); ++i) {
      if (is_on_host(params[i])) {
        copy_rounded(device, params[i].param, params[i].copy, grads_[i]);
      } else {
        copy(device, slots[i].param, params[i].param);
        if (!params[i].copy.absent()) {
          updated.push_back(params[i].param);
          rounded.push_back(params[i].copy);
        }
      }
      if (marks[i] != 0 && params[i].not_finite != nullptr)
        device.copy_in(params[i].not_finite, &marks[i], sizeof marks[i]);
    }
    if (!updated.empty()) device.kernels().cast(updated, rounded, device.stream());
  }

  void simulate_sums(const UpdateArgs& args, std::span<const ParamSlot> params) override {
    optimizer_->simulate_sums(args, params);
  }
  std::vector<StateArray> state() override { return optimizer_->state(); }
  void take_back() override { optimizer_->take_back(); }
  bool takes_not_finite() const override { return optimizer_->takes_not_finite(); }
  std::optional<double> example_clip() const override { return optimizer_->example_clip(); }

 private:
  bool is_on_host(const ParamSlot& slot) const {
    return options_.masters_on_host && !slot.copy.absent();
  }
  /// The gradient has been used: its place is taken.
  static void copy_rounded(Device& device, const View& master, const View& to,
                           const StateBuffer& gradient) {
    auto* rounded = reinterpret_cast<bfloat16*>(gradient.buffer.get());
    cpu::convert(master.data<float>(), master.elements(), rounded);
    device.copy(to.pointer, rounded, master.elements() * size_of(DType::bf16));
  }
  static void copy(Device& device, const View& from, const View& to) {
    QT_ASSERT(from.dtype == to.dtype);
    device.copy(to.pointer, from.pointer, from.elements() * size_of(from.dtype));
  }
  static StateBuffer pinned_like(const View& array, DType dtype) {
    StateBuffer pinned{
        Device::current().pinned(std::max<int64_t>(array.elements() * size_of(dtype), 1)), array};
    pinned.view.dtype = dtype;
    pinned.view.pointer = pinned.buffer.get();
    return pinned;
  }
  OptimizerPtr optimizer_;
  HostMirrorOptions options_;
  std::vector<StateBuffer> params_, grads_;
};

}  // namespace

OptimizerPtr host_mirror(OptimizerPtr optimizer, const HostMirrorOptions& options) {
  return std::make_shared<HostMirror>(std::move(optimizer), options);
}

}  // namespace quintet
