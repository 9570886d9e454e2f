#pragma once
// Device kernels that are not ops, as a table: what parameters, optimizers and generation call
// through Device::kernels(). Each is declared, with its meaning, in the header named beside it, in
// namespaces quintet::cuda and quintet::emulated.

#include "kernels/kernel.h"

namespace quintet {

struct GpuKernels {
  /// to[i] = from[i] in to[i]'s dtype (float32, bfloat16), for a list of arrays. kernels/cast/cast_gpu.h
  void (*cast)(Views from, Views to, Stream stream);
};

}  // namespace quintet
