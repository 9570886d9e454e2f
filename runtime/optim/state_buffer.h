#pragma once
// Memory of one array of optimizer state.

#include <span>

#include "kernels/device.h"
#include "runtime/base/axis.h"
#include "runtime/base/memory/memory.h"
#include "runtime/base/view.h"

namespace quintet {

struct StateBuffer {
  Buffer buffer;
  View view;
  Device* device = &Device::cpu();
  float* floats() const { return view.data<float>(); }
  int32_t& count() const { return *view.data<int32_t>(); }
};

/// Zeros; on the CPU, touched first by the threads that will update them.
StateBuffer zero_state(DType dtype, std::span<const int64_t> sizes, Device& device);
/// Zeros in the form of `like`.
StateBuffer zero_state_like(const View& like, Device& device, DType dtype = DType::f32);

/// Logical names of the axes.
std::vector<std::string> names_of(const Axes& axes);

}  // namespace quintet
