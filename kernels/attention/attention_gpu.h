#pragma once
// attention and attention_grad on a GPU, as attention.h has them: float32 in float32 arithmetic;
// bfloat16 on tensor cores (sm_80: mma.sync; sm_90a: wgmma) where head sizes are multiples of 8 up
// to 128 and pointers multiples of 16 bytes, else in float32 arithmetic too. lse, table and dtable
// are float32 always. Heads of at most 256 columns. Equal calls give equal bytes.

#include "kernels/kernel.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU {

void attention_ranges_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void attention_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void attention_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet::QT_GPU
