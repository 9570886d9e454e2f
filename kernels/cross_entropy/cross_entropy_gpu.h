#pragma once
// Output projection and softmax cross-entropy on a GPU; operands and results as in cross_entropy.h.
// x, the projection and dx are float32 or bfloat16, all else float32. Chunks of tokens: logits by a
// matrix product, one kernel that turns a row of logits in place into its gradient, products for dx
// and dw. In bfloat16 logits and their gradients are rounded to 16 bits; sums are float32, sums
// over tokens double in token order. A bad target is a fault of the device and counts as weight 0.

#include "kernels/kernel.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU {

void cross_entropy_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void cross_entropy_t_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void cross_entropy_statistics_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void cross_entropy_t_statistics_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void cross_entropy_apply_gpu(Views in, Views out, const Attrs& attrs, Stream stream);
void cross_entropy_t_apply_gpu(Views in, Views out, const Attrs& attrs, Stream stream);

/// Any of them, `is_transposed` or not, with at most so many tokens a chunk.
void cross_entropy_in_chunks(Views in, Views out, const Attrs& attrs, Stream stream,
                             bool is_transposed, int64_t tokens_per_chunk);

}  // namespace quintet::QT_GPU
