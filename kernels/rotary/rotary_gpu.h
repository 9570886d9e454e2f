#pragma once
// Rows turned on a GPU, float32 or bfloat16, computed in float32 and rounded once: RotateRows (rotary.h).

#include "kernels/rotary/rotary.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU {

void rotate_rows_gpu(const RotateRows& rows, Stream stream);

}  // namespace quintet::QT_GPU
