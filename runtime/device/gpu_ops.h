#pragma once
// Device kernels of every op of runtime/op/ops.def: <op>_gpu in namespace quintet::cuda and in
// quintet::emulated. Meaning, attributes and shapes: those of <op>_cpu (the
// header of its folder), but all pointers are device memory and activations may be bfloat16. Weights
// come in the activations' dtype; weight gradients, statistics, scalars, log-probabilities, norm
// scales and relative-bias tables are float32.

#include <memory>
#include <string>

#include "kernels/device.h"

namespace quintet {
namespace cuda {
#define OP(name, rule, attributes, cost, vjp, phases) \
  void name##_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
#include "runtime/op/ops.def"
/// GPU number `ordinal`. Throws Error(kEnvironment) saying what is missing: driver, GPU, or one new
/// enough.
std::unique_ptr<Device> open_device(int ordinal);
/// Loads the libraries of the machine that every use of a GPU takes. Throws Error(kEnvironment)
/// naming the one that is missing.
void load_libraries();
/// "CUDA driver 12.4, runtime 13.0"
std::string versions();
}  // namespace cuda
namespace emulated {
#include "runtime/op/ops.def"
#undef OP
/// A GPU on the CPU. `sm`: the architecture whose kernels it takes, 80 or 90.
std::unique_ptr<Device> open_device(int sm);
}  // namespace emulated
}  // namespace quintet
