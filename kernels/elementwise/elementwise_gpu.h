#pragma once
// Elementwise ops on a GPU (float32 or bfloat16; sums in float32, rounded once), and three that are
// no ops. Meanings of the ops: elementwise.h.

#include "kernels/kernel.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU {

void add_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void scale_gpu(Views in, Views out, const Attrs& attrs, Stream stream);

/// Every element of y (float32 or bfloat16) becomes `value`, rounded.
void fill_gpu(const View& y, float value, Stream stream);
/// sum += x, added in float32; float32 or bfloat16 each, equal numbers of elements.
void accumulate_gpu(const View& sum, const View& x, Stream stream);
/// ++*word, of pinned memory that the host may read meanwhile and nobody else writes.
void count_up_gpu(uint32_t* word, Stream stream);

}  // namespace quintet::QT_GPU
