#pragma once
// Tokens set to zero, as flaxformer does with padding before attention and MLP.
//
//   mask_tokens  x [..., e], mask [...] int32  ->  y [..., e]    y = x where mask != 0, else 0
//
// Its gradient is itself. No attributes. A NaN that is masked becomes 0.

#include "kernels/kernel.h"

namespace quintet {

void mask_tokens_cpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet
