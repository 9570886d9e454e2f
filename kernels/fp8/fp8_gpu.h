#pragma once
// FP8 products on a GPU by cuBLASLt, of operands that one pass casts and transposes, and the scaling's update in one launch.
// The mathematics: fp8.h. x, w, dy, y and dx float32 or bfloat16.

#include "kernels/fp8/fp8.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU {

void matmul_fp8_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void matmul_fp8_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream);

/// All pointers are to the device's memory, of weights to multiples of 16 bytes; one launch for each dtype among `layers`.
void cast_fp8_weights_gpu(std::span<const Fp8Weights> layers, Stream stream);
/// The same.
void update_fp8_scaling_gpu(const Fp8Update& update, const UpdateControl* control, Stream stream);

}  // namespace quintet::QT_GPU
