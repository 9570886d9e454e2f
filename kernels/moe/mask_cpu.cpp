#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/moe/mask.h"

namespace quintet {

void mask_tokens_cpu(Views in, Views out, const Attrs&, Stream) {
  const int64_t depth = in[0].depth(), rows = in[0].rows();
  cpu::expect_shape(in[1].elements() == rows, "mask_tokens", "...e, ... -> ...e");
  const float* x = cpu::f32(in[0], "mask_tokens", "x");
  const auto* mask = in[1].data<const int32_t>();
  float* y = cpu::f32(out[0], "mask_tokens", "y");
  cpu::parallel_for(rows, cpu::row_grain(depth), [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      if (mask[r] != 0)
        std::copy_n(x + r * depth, depth, y + r * depth);
      else
        std::fill_n(y + r * depth, depth, 0.0F);
  });
}

}  // namespace quintet
