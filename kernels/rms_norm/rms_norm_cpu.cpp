#include <cmath>

#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/rms_norm/rms_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm/rms_norm_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {

// 1 / sqrt(mean + eps), rounded once: std::sqrt of a double.
float reciprocal_root(float sum_of_squares, int64_t depth, double eps) {
  return static_cast<float>(
      1.0 / std::sqrt(static_cast<double>(sum_of_squares) / static_cast<double>(depth) + eps));
}

// y = x / rms(x) * scale for `rows` rows.
void norm_rows(const float* x, const float* scale, float* y, int64_t rows, int64_t depth,
               double eps) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t row = 0; row < rows; ++row, x += depth, y += depth) {
    auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
    int64_t i = 0;
    for (; i + 2 * lanes <= depth; i += 2 * lanes) {
      const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + lanes);
      sum0 = hn::MulAdd(a, a, sum0);
      sum1 = hn::MulAdd(b, b, sum1);
    }
    float sum = sum_of_lanes(d, hn::Add(sum0, sum1));
    for (; i < depth; ++i) sum += x[i] * x[i];
    const float r = reciprocal_root(sum, depth, eps);
    const auto factor = hn::Set(d, r);
    for (i = 0; i + lanes <= depth; i += lanes)
      hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), factor), hn::LoadU(d, scale + i)), d, y + i);
    for (; i < depth; ++i) y[i] = x[i] * r * scale[i];
  }
}

// dx of `rows` rows; adds their part of the gain's gradient to dscale.
void norm_grad_rows(const float* x, const float* scale, const float* dy, float* dx, float* dscale,
                    int64_t rows, int64_t depth, double eps) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t row = 0; row < rows; ++row, x += depth, dy += depth, dx += depth) {
    auto squares = hn::Zero(d), products = hn::Zero(d);
    int64_t i = 0;
    for (; i + lanes <= depth; i += lanes) {
      const auto a = hn::LoadU(d, x + i);
      squares = hn::MulAdd(a, a, squares);
      products = hn::MulAdd(hn::Mul(a, hn::LoadU(d, scale + i)), hn::LoadU(d, dy + i), products);
    }
    float square_sum = sum_of_lanes(d, squares), product_sum = sum_of_lanes(d, products);
    for (; i < depth; ++i) {
      square_sum += x[i] * x[i];
      product_sum += x[i] * scale[i] * dy[i];
    }
    const float r = reciprocal_root(square_sum, depth, eps);
    const float pull = r * r * r * product_sum / static_cast<float>(depth);
    const auto vr = hn::Set(d, r), vpull = hn::Set(d, pull);
    for (i = 0; i + lanes <= depth; i += lanes) {
      const auto a = hn::LoadU(d, x + i);
      const auto g = hn::Mul(hn::LoadU(d, dy + i), vr);
      hn::StoreU(hn::NegMulAdd(a, vpull, hn::Mul(g, hn::LoadU(d, scale + i))), d, dx + i);
      hn::StoreU(hn::MulAdd(g, a, hn::LoadU(d, dscale + i)), d, dscale + i);
    }
    for (; i < depth; ++i) {
      dx[i] = dy[i] * r * scale[i] - x[i] * pull;
      dscale[i] += dy[i] * r * x[i];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quintet {
namespace {

HWY_EXPORT(norm_rows);
HWY_EXPORT(norm_grad_rows);

}  // namespace

void rms_norm_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  const int64_t rows = in[0].rows(), depth = in[0].depth();
  cpu::expect_shape(in[1].elements() == depth && out[0].elements() == in[0].elements(), "rms_norm",
                    "...e, e -> ...e");
  const float* x = cpu::f32(in[0], "rms_norm", "x");
  const float* scale = cpu::f32(in[1], "rms_norm", "scale");
  float* y = cpu::f32(out[0], "rms_norm", "y");
  const double eps = attrs.get_or<double>("eps", 1e-6);
  cpu::parallel_for(rows, cpu::row_grain(depth), [=](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(norm_rows)
    (x + begin * depth, scale, y + begin * depth, end - begin, depth, eps);
  });
}

void rms_norm_grad_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  const int64_t rows = in[0].rows(), depth = in[0].depth();
  cpu::expect_shape(in[1].elements() == depth && in[2].elements() == in[0].elements() &&
                        out[0].elements() == in[0].elements() && out[1].elements() == depth,
                    "rms_norm_grad", "...e, e, ...e -> ...e, e");
  const float* x = cpu::f32(in[0], "rms_norm_grad", "x");
  const float* scale = cpu::f32(in[1], "rms_norm_grad", "scale");
  const float* dy = cpu::f32(in[2], "rms_norm_grad", "dy");
  float* dx = cpu::f32(out[0], "rms_norm_grad", "dx");
  float* dscale = cpu::f32(out[1], "rms_norm_grad", "dscale");
  const double eps = attrs.get_or<double>("eps", 1e-6);
  const int parts = cpu::part_count(rows, cpu::row_grain(depth));
  // Each part sums into its own row, cache lines apart; rows are added in order afterwards.
  const int64_t stride = (depth + 31) / 16 * 16;
  float* sums = cpu::scratch(cpu::Scratch::kSums, parts * stride);
  std::fill(sums, sums + parts * stride, 0.0F);
  cpu::parallel_parts(rows, parts, [=](int64_t begin, int64_t end, int part) {
    const int64_t at = begin * depth;
    HWY_DYNAMIC_DISPATCH(norm_grad_rows)
    (x + at, scale, dy + at, dx + at, sums + part * stride, end - begin, depth, eps);
  });
  for (int64_t i = 0; i < depth; ++i) {
    dscale[i] = 0;
    for (int part = 0; part < parts; ++part) dscale[i] += sums[part * stride + i];
  }
}

}  // namespace quintet
#endif
