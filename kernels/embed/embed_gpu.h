#pragma once
// Embedding on a GPU: table and dy float32 or bfloat16, the table's gradient float32. The meaning:
// embed.h. An id outside the vocabulary is a fault of the device and counts as no row.
// The gradient sorts positions by id and adds equal ids in runs of 32 positions, then the runs in
// order: the same bits every time, without atomics.

#include "kernels/kernel.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU {

void embed_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void embed_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet::QT_GPU
