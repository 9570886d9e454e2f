#pragma once
// Conversion between float32 and bfloat16 on a GPU, of many arrays in one launch: 16-bit copies of
// all parameters cost one pass over memory.
//
//   cast_gpu(masters, copies, stream);   // float32 -> bfloat16, rounded to nearest even

#include "kernels/kernel.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU {

/// to[i] = from[i] in to[i]'s dtype; float32 or bfloat16 each, equal numbers of elements.
void cast_gpu(Views from, Views to, Stream stream);

}  // namespace quintet::QT_GPU
