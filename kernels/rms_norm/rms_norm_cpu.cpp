#include <cmath>
#include <optional>

#include "kernels/cpu/addend.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/dropout/apply.h"
#include "kernels/fp8/fp8.h"
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

// out = x / rms(x) * scale for `rows` rows; unless y is null, x_new = x + y in place of x.
void norm_rows(const float* x, const float* y, const float* scale, float* x_new, float* out,
               int64_t rows, int64_t depth, double eps) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t row = 0; row < rows; ++row, x += depth, out += depth) {
    auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
    int64_t i = 0;
    for (; i + 2 * lanes <= depth; i += 2 * lanes) {
      auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + lanes);
      if (y != nullptr) {
        a = hn::Add(a, hn::LoadU(d, y + i));
        b = hn::Add(b, hn::LoadU(d, y + i + lanes));
        hn::StoreU(a, d, x_new + i);
        hn::StoreU(b, d, x_new + i + lanes);
      }
      sum0 = hn::MulAdd(a, a, sum0);
      sum1 = hn::MulAdd(b, b, sum1);
    }
    float sum = sum_of_lanes(d, hn::Add(sum0, sum1));
    for (; i < depth; ++i) {
      float v = x[i];
      if (y != nullptr) x_new[i] = v += y[i];
      sum += v * v;
    }
    const float r = reciprocal_root(sum, depth, eps);
    const auto factor = hn::Set(d, r);
    const float* v = y == nullptr ? x : x_new;
    for (i = 0; i + lanes <= depth; i += lanes)
      hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, v + i), factor), hn::LoadU(d, scale + i)), d,
                 out + i);
    for (; i < depth; ++i) out[i] = v[i] * r * scale[i];
    if (y != nullptr) y += depth, x_new += depth;
  }
}

// dx of `rows` rows, plus dx_new unless that is null; adds their part of the gain's gradient to
// dscale.
void norm_grad_rows(const float* x, const float* scale, const float* dy, const float* dx_new,
                    float* dx, float* dscale, int64_t rows, int64_t depth, double eps) {
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
    const float rescale = r * r * r * product_sum / static_cast<float>(depth);
    const auto vr = hn::Set(d, r), vrescale = hn::Set(d, rescale);
    for (i = 0; i + lanes <= depth; i += lanes) {
      const auto a = hn::LoadU(d, x + i);
      const auto g = hn::Mul(hn::LoadU(d, dy + i), vr);
      auto v = hn::NegMulAdd(a, vrescale, hn::Mul(g, hn::LoadU(d, scale + i)));
      if (dx_new != nullptr) v = hn::Add(hn::LoadU(d, dx_new + i), v);
      hn::StoreU(v, d, dx + i);
      hn::StoreU(hn::MulAdd(g, a, hn::LoadU(d, dscale + i)), d, dscale + i);
    }
    for (; i < depth; ++i) {
      const float v = dy[i] * r * scale[i] - x[i] * rescale;
      dx[i] = dx_new == nullptr ? v : dx_new[i] + v;
      dscale[i] += dy[i] * r * x[i];
    }
    if (dx_new != nullptr) dx_new += depth;
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

struct NormGrad {
  const float *x, *scale, *dout;
  const float* dx_new = nullptr;  // added to dx, if any
  float *dx, *dscale;
  float dscale_beta = 0;  // of what is in dscale
  float* dy = nullptr;    // dropout(dx), if there is dropout
  std::optional<cpu::RowDropout> dropout{};
};

void norm_grad(const NormGrad& a, int64_t rows, int64_t depth, double eps) {
  const int parts = cpu::part_count(rows, cpu::row_grain(depth));
  // Each part sums into its own row, cache lines apart; rows are added in order afterwards.
  const int64_t stride = (depth + 31) / 16 * 16;
  float* sums = cpu::scratch(cpu::Scratch::kSums, parts * stride);
  std::fill(sums, sums + parts * stride, 0.0F);
  cpu::parallel_parts(
      rows, parts, [&a, sums, stride, depth, eps](int64_t begin, int64_t end, int part) {
        const auto run = [&](int64_t row, int64_t count) {
          const int64_t at = row * depth;
          HWY_DYNAMIC_DISPATCH(norm_grad_rows)
          (a.x + at, a.scale, a.dout + at, a.dx_new == nullptr ? nullptr : a.dx_new + at, a.dx + at,
           sums + part * stride, count, depth, eps);
        };
        if (!a.dropout) return run(begin, end - begin);
        cpu::RowDropout drop = *a.dropout;
        for (int64_t row = begin; row < end; ++row) {
          run(row, 1);
          drop(row, nullptr, a.dx + row * depth, a.dy + row * depth);  // while dx is in the cache
        }
      });
  for (int64_t i = 0; i < depth; ++i) {
    float total = 0;
    for (int part = 0; part < parts; ++part) total += sums[part * stride + i];
    a.dscale[i] = a.dscale_beta == 0 ? total : a.dscale[i] + total;
  }
}

std::optional<cpu::RowDropout> dropout_of(const char* op, const View& x, const Attrs& attrs) {
  if (attrs.get_or<double>("rate", 0) == 0) return {};
  return cpu::RowDropout(op, x, attrs);
}

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
    (x + begin * depth, nullptr, scale, nullptr, y + begin * depth, end - begin, depth, eps);
  });
}

void rms_norm_grad_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  const char* op = "rms_norm_grad";
  const int64_t n = in[0].elements(), depth = in[0].depth();
  cpu::expect_shape(in[1].elements() == depth && in[2].elements() == n && out[0].elements() == n &&
                        out[1].elements() == depth,
                    op, "...e, e, ...e -> ...e, e");
  norm_grad({.x = cpu::f32(in[0], op, "x"),
             .scale = cpu::f32(in[1], op, "scale"),
             .dout = cpu::f32(in[2], op, "dy"),
             .dx = cpu::f32(out[0], op, "dx"),
             .dscale = cpu::f32(out[1], op, "dscale"),
             .dscale_beta = cpu::copy_addend(in, 3, out, 1)},
            in[0].rows(), depth, attrs.get_or<double>("eps", 1e-6));
}

void add_rms_norm_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  const char* op = "add_rms_norm";
  const int64_t n = in[0].elements(), depth = in[0].depth();
  cpu::expect_shape(in[1].elements() == n && in[2].elements() == depth && out[0].elements() == n &&
                        out[1].elements() == n,
                    op, "...e, ...e, e -> ...e, ...e");
  const float* x = cpu::f32(in[0], op, "x");
  const float* y = cpu::f32(in[1], op, "y");
  const float* scale = cpu::f32(in[2], op, "scale");
  float* x_new = cpu::f32(out[0], op, "x_new");
  float* to = cpu::f32(out[1], op, "out");
  const double eps = attrs.get_or<double>("eps", 1e-6);
  const auto dropout = dropout_of(op, in[1], attrs);
  cpu::parallel_for(in[0].rows(), cpu::row_grain(depth), [&](int64_t begin, int64_t end) {
    const int64_t first = begin * depth;
    if (!dropout)
      return HWY_DYNAMIC_DISPATCH(norm_rows)(x + first, y + first, scale, x_new + first, to + first,
                                             end - begin, depth, eps);
    cpu::RowDropout drop = *dropout;
    for (int64_t row = begin, at = first; row < end; ++row, at += depth) {
      drop(row, x + at, y + at, x_new + at);
      HWY_DYNAMIC_DISPATCH(norm_rows)
      (x_new + at, nullptr, scale, nullptr, to + at, 1, depth, eps);
    }
  });
}

void rms_norm_fp8_cpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  cpu::make_fp8_bytes(out.subspan(0), in[2], attrs, [&](const View& y) {
    rms_norm_cpu(in, {&y, 1}, attrs, stream);
  });
}

void add_rms_norm_fp8_cpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  cpu::make_fp8_bytes(out.subspan(1), in[3], attrs, [&](const View& y) {
    const View results[] = {out[0], y};
    add_rms_norm_cpu(in, results, attrs, stream);
  });
}

void add_rms_norm_grad_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  const char* op = "add_rms_norm_grad";
  const int64_t n = in[0].elements(), depth = in[0].depth();
  auto dropout = dropout_of(op, in[0], attrs);
  cpu::expect_shape(in[1].elements() == depth && in[2].elements() == n && in[3].elements() == n &&
                        out[0].elements() == n && out[1].absent() == !dropout &&
                        out[2].elements() == depth,
                    op, "...e, e, ...e, ...e -> ...e, ...e?, e");
  norm_grad({.x = cpu::f32(in[0], op, "x_new"),
             .scale = cpu::f32(in[1], op, "scale"),
             .dout = cpu::f32(in[2], op, "dout"),
             .dx_new = cpu::f32(in[3], op, "dx_new"),
             .dx = cpu::f32(out[0], op, "dx"),
             .dscale = cpu::f32(out[2], op, "dscale"),
             .dscale_beta = cpu::copy_addend(in, 4, out, 2),
             .dy = dropout ? cpu::f32(out[1], op, "dy") : nullptr,
             .dropout = std::move(dropout)},
            in[0].rows(), depth, attrs.get_or<double>("eps", 1e-6));
}

}  // namespace quintet
#endif
