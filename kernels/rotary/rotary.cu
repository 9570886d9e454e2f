// A thread a point: two reads and writes of memory, and an angle that is computed rather than read.

#include "kernels/rotary/rotary_gpu.h"
#include "kernels/vectors/operands_gpu.h"
#include "kernels/vectors/vectors.cuh"

namespace quintet::QT_GPU {
namespace {

/// Where the points are, and by what they are turned.
struct Points {
  int64_t rows, heads, half, row_stride;
  const int32_t* positions;  // [rows]; null: row r is at first + r % length
  int64_t first, length;
  float max_timescale, sign;

  int64_t count() const { return rows * heads * half; }
};

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) rotate_kernel(const T* x, T* y, Points p) {
  for_units<1>(p.rows * p.heads * p.half, false, [=](int64_t i, auto) {
    const int64_t j = i % p.half, head = i / p.half % p.heads, row = i / p.half / p.heads;
    const int64_t position = p.positions != nullptr ? p.positions[row] : p.first + row % p.length;
    const float angle =
        static_cast<float>(position) *
        (1 / powf(p.max_timescale, static_cast<float>(j) / static_cast<float>(p.half)));
    const float c = cosf(angle), s = p.sign * sinf(angle);
    const int64_t at = row * p.row_stride + head * 2 * p.half + j;
    float a[1], b[1];
    load<1>(x + at, a);
    load<1>(x + at + p.half, b);
    const float to[2][1] = {{a[0] * c - b[0] * s}, {b[0] * c + a[0] * s}};
    store<1>(y + at, to[0]);
    store<1>(y + at + p.half, to[1]);
  });
}

simt::Launch over(const Points& p, Stream stream) {
  return {.grid = blocks_for(p.count()), .block = kBlockThreads, .stream = stream};
}

void rotate(const View& view, const View& to, const Attrs& attrs, float sign, Stream stream) {
  expect_shape(view.rank == 3 && to.elements() == view.elements(), "rotate", "bl(hd) -> bl(hd)");
  if (view.elements() == 0) return;
  const int64_t d = view.global[2] / attrs.get<int64_t>("h"), depth = view.depth();
  const Points points{.rows = view.rows(),
                      .heads = depth / d,
                      .half = d / 2,
                      .row_stride = depth,
                      .positions = nullptr,
                      .first = view.origin[1],
                      .length = view.size(1),
                      .max_timescale = static_cast<float>(attrs.get<double>("max_timescale")),
                      .sign = sign};
  for_dtype(view, "rotate", [&]<typename T>(T) {
    simt::launch(rotate_kernel<T>, over(points, stream), elements<T>(view, "rotate", "x"),
                 elements<T>(to, "rotate", "y"), points);
  });
}

}  // namespace

void rotate_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  rotate(in[0], out[0], attrs, 1, stream);
}

void rotate_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  rotate(in[0], out[0], attrs, -1, stream);
}

void rotate_rows_gpu(const RotateRows& rows, Stream stream) {
  const Points points{.rows = rows.rows,
                      .heads = rows.heads,
                      .half = rows.head_dim / 2,
                      .row_stride = rows.row_stride,
                      .positions = rows.positions,
                      .first = 0,
                      .length = 1,
                      .max_timescale = static_cast<float>(rows.max_timescale),
                      .sign = 1};
  if (points.count() == 0) return;
  const auto launch = [&]<typename T>(T* x) {
    simt::launch(rotate_kernel<T>, over(points, stream), static_cast<const T*>(x), x, points);
  };
  if (rows.dtype == DType::f32)
    launch(static_cast<float*>(rows.x));
  else
    launch(static_cast<bf16*>(rows.x));
}

}  // namespace quintet::QT_GPU
