#pragma once
// Strided copies on a GPU, one launch each.

#include "kernels/kernel.h"
#include "kernels/simt/target.h"
#include "kernels/strided_copy.h"

namespace quintet::QT_GPU {

/// As copy_strided_cpu, of device memory.
void copy_strided_gpu(const StridedCopy& copy, Stream stream);

}  // namespace quintet::QT_GPU
