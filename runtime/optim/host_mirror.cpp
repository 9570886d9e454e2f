#include "runtime/optim/host_mirror.h"

#include "runtime/optim/state_buffer.h"

namespace quintet {
namespace {

class HostMirror final : public Optimizer {
 public:
  explicit HostMirror(OptimizerPtr optimizer) : optimizer_(std::move(optimizer)) {}

  void init(std::span<const ParamSlot> params) override {
    params_.clear();
    grads_.clear();
    std::vector<ParamSlot> slots(params.begin(), params.end());
    for (ParamSlot& slot : slots) {
      params_.push_back(zero_state_like(slot.param, Device::cpu()));
      grads_.push_back(zero_state_like(slot.param, Device::cpu()));
      slot.param = params_.back().view;
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
      copy_out(device, params[i].param, params_[i].view);
      slots[i].param = params_[i].view;
      slots[i].copy = View::none();
      slots[i].not_finite = &marks[i];
      if (slots[i].grad.absent()) continue;
      copy_out(device, params[i].grad, grads_[i].view);
      slots[i].grad = grads_[i].view;
    }
    {
      const Device::Use on_cpu(Device::cpu());
      optimizer_->update(args, slots);
    }
    for (size_t i = 0; i < slots.size(); ++i) {
      device.copy_in(params[i].param.pointer, slots[i].param.pointer,
                     slots[i].param.elements() * size_of(DType::f32));
      if (marks[i] != 0 && params[i].not_finite != nullptr)
        device.copy_in(params[i].not_finite, &marks[i], sizeof marks[i]);
    }
  }

  void simulate_sums(const UpdateArgs& args, std::span<const ParamSlot> params) override {
    optimizer_->simulate_sums(args, params);
  }
  std::vector<StateArray> state() override { return optimizer_->state(); }
  bool on_device() const override { return false; }

 private:
  static void copy_out(Device& device, const View& from, const View& to) {
    QT_ASSERT(from.dtype == DType::f32);
    device.copy_out(to.pointer, from.pointer, from.elements() * size_of(DType::f32));
  }
  OptimizerPtr optimizer_;
  std::vector<StateBuffer> params_, grads_;
};

}  // namespace

OptimizerPtr host_mirror(OptimizerPtr optimizer) {
  return std::make_shared<HostMirror>(std::move(optimizer));
}

}  // namespace quintet
