#include <algorithm>

#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/moe/dispatch.h"

namespace quintet {

void dispatch_cpu(Views in, Views out, const Attrs&, Stream) {
  const View &x_view = in[0], &gates_view = in[3], &y_view = out[0];
  const int64_t depth = x_view.depth(), k = in[1].depth();
  cpu::expect_shape(y_view.depth() == depth && y_view.rows() == in[2].elements(), "dispatch",
                    "ble, blk, bn, blk? -> bne");
  const float* x = cpu::f32(x_view, "dispatch", "x");
  const auto* choices = in[2].data<const int32_t>();
  const float* gates = gates_view.absent() ? nullptr : cpu::f32(gates_view, "dispatch", "gates");
  float* y = cpu::f32(y_view, "dispatch", "y");
  cpu::parallel_for(y_view.rows(), cpu::row_grain(depth), [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* to = y + r * depth;
      if (choices[r] < 0) {
        std::fill_n(to, depth, 0.0F);
        continue;
      }
      const float* from = x + choices[r] / k * depth;
      if (gates == nullptr) {
        std::copy_n(from, depth, to);
        continue;
      }
      const float gate = gates[choices[r]];
      for (int64_t i = 0; i < depth; ++i) to[i] = gate * from[i];
    }
  });
}

void combine_cpu(Views in, Views out, const Attrs&, Stream) {
  const View &rows_view = in[1], &gates_view = in[3];
  const int64_t depth = in[0].depth(), k = rows_view.depth();
  cpu::expect_shape(out[0].depth() == depth && out[0].rows() == rows_view.rows(), "combine",
                    "bne, blk, bn, blk? -> ble");
  const float* y = cpu::f32(in[0], "combine", "y");
  const auto* rows = rows_view.data<const int32_t>();
  const float* gates = gates_view.absent() ? nullptr : cpu::f32(gates_view, "combine", "gates");
  float* x = cpu::f32(out[0], "combine", "x");
  cpu::parallel_for(rows_view.rows(), cpu::row_grain(depth), [=](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* to = x + t * depth;
      bool first = true;
      for (int64_t c = t * k; c < (t + 1) * k; ++c) {
        if (rows[c] < 0) continue;
        const float* from = y + rows[c] * depth;
        const float gate = gates == nullptr ? 1 : gates[c];
        for (int64_t i = 0; i < depth; ++i) to[i] = first ? gate * from[i] : to[i] + gate * from[i];
        first = false;
      }
      if (first) std::fill_n(to, depth, 0.0F);
    }
  });
}

void combine_grad_gates_cpu(Views in, Views out, const Attrs&, Stream) {
  const int64_t depth = in[0].depth(), k = in[1].depth();
  cpu::expect_shape(in[2].depth() == depth && in[2].rows() == in[1].rows() &&
                        out[0].elements() == in[1].elements(),
                    "combine_grad_gates", "bne, blk, ble -> blk");
  const float* y = cpu::f32(in[0], "combine_grad_gates", "y");
  const auto* rows = in[1].data<const int32_t>();
  const float* dx = cpu::f32(in[2], "combine_grad_gates", "dx");
  auto* dgates = out[0].data<float>();
  cpu::parallel_for(in[1].elements(), cpu::row_grain(depth), [=](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      float sum = 0;
      if (rows[c] >= 0) {
        const float *a = y + rows[c] * depth, *b = dx + c / k * depth;
        float lanes[8] = {};
        int64_t i = 0;
        for (; i + 8 <= depth; i += 8)
          for (int64_t lane = 0; lane < 8; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
        for (; i < depth; ++i) sum += a[i] * b[i];
        for (const float lane : lanes) sum += lane;
      }
      dgates[c] = sum;
    }
  });
}

}  // namespace quintet
