#pragma once
// Embedding: rows of a table by number.
//
//   embed       ids int32 [...], table [v, e]  ->  y [..., e]     y[i] = table[ids[i]]
//   embed_grad  ids int32 [...], dy [..., e]   ->  dtable [v, e]  dtable[r] = sum of dy[i], ids[i] = r
//
// The table may be a block of rows of a larger one: its View's origin[0] and global[0] say which.
// Ids count rows of the whole table; those outside the block give zero rows (and add nothing), so
// the blocks' results add up to the whole. An id below 0 or not below global[0] is Error(kData)
// naming the id, its position and the vocabulary size. No attributes. float32 only.
// Gradients are summed in the order of positions, whatever the thread count. What is there, if the op adds
// (`&` in runtime/op/ops.def), comes first on a CPU and last on a GPU.

#include "kernels/kernel.h"

namespace quintet {

void embed_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void embed_grad_cpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet
