#include "runtime/optim/device_clip.h"

#include "kernels/gpu/gpu_kernels.h"
#include "runtime/optim/gradients.h"

namespace quintet {

const UpdateControl* DeviceClip::decide(const UpdateArgs& args, std::span<const ParamSlot> params,
                                        double max_norm) {
  if (max_norm == 0) return args.control;
  Device& device = Device::current();
  control_ = device.memory().allocate(sizeof(UpdateControl) + sizeof(double));
  auto* norm_squared = reinterpret_cast<double*>(control_.get());
  auto* control = reinterpret_cast<UpdateControl*>(norm_squared + 1);
  const double* squares = args.squares;
  std::optional<QueuedCheck> check;
  if (squares == nullptr && args.gradient_norm) {
    const double known = *args.gradient_norm * *args.gradient_norm;
    device.copy_in(norm_squared, &known, sizeof known);
    squares = norm_squared;
  } else if (squares == nullptr) {
    squares = check.emplace(params, GradientCheckOptions{.reducer = args.reducer}).squares();
  }
  device.kernels().decide_update(squares, max_norm, args.control, control, device.stream());
  return control;
}

void DeviceClip::simulate(const UpdateArgs& args, std::span<const ParamSlot> params,
                          double max_norm) {
  if (max_norm != 0 && args.squares == nullptr && !args.gradient_norm)
    check_gradients(params, {.reducer = args.reducer});
}

}  // namespace quintet
