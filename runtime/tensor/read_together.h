#pragma once
// Several tensors read by the host with one wait for the device.
//
//   const std::vector<HostArray> values = read_together({loss, z_loss, correct});

#include <span>
#include <vector>

#include "runtime/tensor/tensor.h"

namespace quintet {

/// The local blocks, in their order; all lie on the current device. Throws what went wrong on the device meanwhile, as
/// Device::copy_out.
std::vector<HostArray> read_together(std::span<const Tensor> tensors);

}  // namespace quintet
