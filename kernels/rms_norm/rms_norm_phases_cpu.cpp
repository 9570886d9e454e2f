#include <cmath>
#include <vector>

#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/rms_norm/rms_norm.h"

namespace quintet {
namespace {

float product_sum(const float* a, const float* b, const float* scale, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * (scale == nullptr ? b[i] : b[i] * scale[i]);
  return sum;
}

/// 1 / rms of a row of the whole array.
float reciprocal_root(float squares, const View& x, const Attrs& attrs) {
  const auto depth = static_cast<double>(x.global[static_cast<size_t>(x.rank - 1)]);
  return static_cast<float>(
      1.0 / std::sqrt(static_cast<double>(squares) / depth + attrs.get_or<double>("eps", 1e-6)));
}

}  // namespace

void rms_norm_squares_cpu(Views in, Views out, const Attrs&, Stream) {
  const int64_t depth = in[0].depth();
  const float* x = cpu::f32(in[0], "rms_norm", "x");
  float* squares = cpu::f32(out[0], "rms_norm", "squares");
  cpu::parallel_for(in[0].rows(), cpu::row_grain(depth), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      squares[row] = product_sum(x + row * depth, x + row * depth, nullptr, depth);
  });
}

void rms_norm_apply_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  const int64_t depth = in[0].depth();
  const float* x = cpu::f32(in[0], "rms_norm", "x");
  const float* scale = cpu::f32(in[1], "rms_norm", "scale");
  const float* squares = cpu::f32(in[2], "rms_norm", "squares");
  float* y = cpu::f32(out[0], "rms_norm", "y");
  cpu::parallel_for(in[0].rows(), cpu::row_grain(depth), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float r = reciprocal_root(squares[row], in[0], attrs);
      for (int64_t i = row * depth; i < (row + 1) * depth; ++i)
        y[i] = x[i] * r * scale[i - row * depth];
    }
  });
}

void rms_norm_products_cpu(Views in, Views out, const Attrs&, Stream) {
  const int64_t depth = in[0].depth();
  const float* x = cpu::f32(in[0], "rms_norm_grad", "x");
  const float* scale = cpu::f32(in[1], "rms_norm_grad", "scale");
  const float* dy = cpu::f32(in[2], "rms_norm_grad", "dy");
  float* squares = cpu::f32(out[0], "rms_norm_grad", "squares");
  float* products = cpu::f32(out[1], "rms_norm_grad", "products");
  cpu::parallel_for(in[0].rows(), cpu::row_grain(depth), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* at = x + row * depth;
      squares[row] = product_sum(at, at, nullptr, depth);
      products[row] = product_sum(at, dy + row * depth, scale, depth);
    }
  });
}

void rms_norm_grad_apply_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  const int64_t rows = in[0].rows(), depth = in[0].depth();
  const float* x = cpu::f32(in[0], "rms_norm_grad", "x");
  const float* scale = cpu::f32(in[1], "rms_norm_grad", "scale");
  const float* dy = cpu::f32(in[2], "rms_norm_grad", "dy");
  const float* squares = cpu::f32(in[3], "rms_norm_grad", "squares");
  const float* products = cpu::f32(in[4], "rms_norm_grad", "products");
  float* dx = cpu::f32(out[0], "rms_norm_grad", "dx");
  float* dscale = cpu::f32(out[1], "rms_norm_grad", "dscale");
  const auto all = static_cast<float>(in[0].global[static_cast<size_t>(in[0].rank - 1)]);
  const int parts = cpu::part_count(rows, cpu::row_grain(depth));
  // Each part sums into its own row; rows are added in order afterwards.
  std::vector<float> sums(static_cast<size_t>(parts * depth));
  cpu::parallel_parts(rows, parts, [&](int64_t begin, int64_t end, int part) {
    float* sum = sums.data() + part * depth;
    for (int64_t row = begin; row < end; ++row) {
      const float r = reciprocal_root(squares[row], in[0], attrs);
      const float rescale = r * r * r * products[row] / all;
      for (int64_t i = 0, at = row * depth; i < depth; ++i, ++at) {
        dx[at] = dy[at] * r * scale[i] - x[at] * rescale;
        sum[i] += dy[at] * r * x[at];
      }
    }
  });
  for (int64_t i = 0; i < depth; ++i) {
    dscale[i] = 0;
    for (int part = 0; part < parts; ++part)
      dscale[i] += sums[static_cast<size_t>(part * depth + i)];
  }
}

}  // namespace quintet
