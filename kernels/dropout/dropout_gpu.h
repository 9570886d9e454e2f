#pragma once
// dropout on a GPU: float32 or bfloat16; the mask is that of dropout_cpu, bit for bit.

#include "kernels/kernel.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU {

void dropout_gpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet::QT_GPU
