#pragma once
// Device kernels that are not ops, as a table: what parameters, optimizers and generation call
// through Device::kernels(). Those of gpu_kernels.def, in namespaces quintet::cuda and quintet::emulated.

#include <span>

#include "kernels/decode_attention/decode_rows.h"
#include "kernels/decode_matmul/small_batch.h"
#include "kernels/dequantize/dequantize.h"
#include "kernels/fp8/fp8.h"
#include "kernels/kernel.h"
#include "kernels/logits/sample_rows.h"
#include "kernels/optimizers/amos_cells.h"
#include "kernels/optimizers/gpu_arrays.h"
#include "runtime/base/threefry.h"

namespace quintet {

struct GpuKernels {
#define GPU_KERNEL(name, ...) void (*name)(__VA_ARGS__);
#include "kernels/gpu/gpu_kernels.def"
#undef GPU_KERNEL
};

}  // namespace quintet
