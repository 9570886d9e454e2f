#include "tests/gpu_ops/launcher.h"

#include <algorithm>

#include "tests/simt/out_of_bounds.h"

namespace quintet::testing {
namespace {

/// A copy of a buffer in the device's memory.
class OnDevice {
 public:
  OnDevice(Device& device, Buffer& host) : device_(device), host_(host) {
    if (host.absent()) return;
    memory_ = device.memory().allocate(bytes());
    device.copy_in(memory_.get(), host.memory().data(), bytes());
  }
  View view() const {
    View view = host_.view();
    if (!host_.absent()) view.pointer = memory_.get() + host_.start();
    return view;
  }
  /// Whether the guards on both sides may be touched.
  void guard(bool on) {
    if (host_.absent()) return;
    const size_t end = host_.start() + host_.bytes().size();
    set_out_of_bounds(memory_.get(), host_.start(), on);
    set_out_of_bounds(memory_.get() + end, host_.memory().size() - end, on);
  }
  void back() {
    if (!host_.absent()) device_.copy_out(host_.memory().data(), memory_.get(), bytes());
  }

 private:
  int64_t bytes() const { return static_cast<int64_t>(host_.memory().size()); }
  Device& device_;
  Buffer& host_;
  quintet::Buffer memory_;
};

}  // namespace

const Op* op_of(Kernel cpu) {
  for (const Op* op : all_ops())
    if (op->cpu == cpu) return op;
  return nullptr;
}

void launch_on_device(const Op& op, std::span<Buffer* const> in, std::span<Buffer* const> out,
                      const Attrs& attrs) {
  Device& device = Device::current();
  std::vector<OnDevice> copies;
  std::vector<View> inputs, outputs;
  for (Buffer* buffer : out) {
    copies.emplace_back(device, *buffer);
    outputs.push_back(copies.back().view());
  }
  for (Buffer* buffer : in) {
    const auto result = std::ranges::find(out, buffer);  // which it is added to
    if (result == out.end()) copies.emplace_back(device, *buffer);
    inputs.push_back(result == out.end() ? copies.back().view()
                                         : outputs[static_cast<size_t>(result - out.begin())]);
  }
  for (OnDevice& copy : copies) copy.guard(true);
  kernel_of(op, device)(inputs, outputs, attrs, device.stream());
  for (OnDevice& copy : copies) copy.guard(false);
  for (OnDevice& copy : copies) copy.back();
}

}  // namespace quintet::testing
