#pragma once
// Several tensors read by the host with one wait for the device.
//
//   const std::vector<HostArray> values = read_together({loss, z_loss, correct});

#include <vector>

#include "runtime/tensor/tensor.h"

namespace quintet {

/// The local blocks, in their order; all lie on the current device. Throws what went wrong on the device meanwhile, as
/// Device::copy_out.
std::vector<HostArray> read_together(const Tensors& tensors);

}  // namespace quintet
