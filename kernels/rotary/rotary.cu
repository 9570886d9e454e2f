// A thread a point: two reads and writes of memory, and an angle that is computed rather than read.

#include "kernels/rotary/rotary.h"
#include "kernels/vectors/operands_gpu.h"
#include "kernels/vectors/vectors.cuh"

namespace quintet::QT_GPU {
namespace {

/// By what points are turned.
struct Turns {
  const int32_t* positions;  // [rows], or null
  float max_timescale, sign;
};

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    rotate_kernel(const T* x, T* y, RotateShape s, Turns by) {
  const int64_t half = s.head_dim / 2;
  for_units<1>(s.rows * s.heads * half, false, [=](int64_t i, auto) {
    const int64_t j = i % half, head = i / half % s.heads, row = i / half / s.heads;
    const int64_t at = (row * s.heads + head) * s.head_dim + j;
    float a[1], b[1];
    load<1>(x + at, a);
    load<1>(x + at + half, b);
    float to[2][1] = {{a[0]}, {b[0]}};
    if (head < s.turned) {
      const int64_t position =
          by.positions != nullptr ? by.positions[row] : s.first + row % s.length;
      const float angle =
          static_cast<float>(position) *
          (1 / powf(by.max_timescale, static_cast<float>(j) / static_cast<float>(half)));
      const float cosine = cosf(angle), sine = by.sign * sinf(angle);
      to[0][0] = a[0] * cosine - b[0] * sine;
      to[1][0] = b[0] * cosine + a[0] * sine;
    }
    store<1>(y + at, to[0]);
    store<1>(y + at + half, to[1]);
  });
}

void rotate(Views in, const View& to, const Attrs& attrs, float sign, Stream stream) {
  const View& x = in[0];
  expect_shape(x.rank >= 2 && to.elements() == x.elements(), "rotate", "...(hd) -> ...(hd)");
  if (x.elements() == 0) return;
  const Turns by{.positions = in[1].absent() ? nullptr : in[1].data<const int32_t>(),
                 .max_timescale = static_cast<float>(attrs.get<double>("max_timescale")),
                 .sign = sign};
  for_dtype(x, "rotate", [&]<typename T>(T) {
    simt::launch(rotate_kernel<T>,
                 {.grid = blocks_for(x.elements() / 2), .block = kBlockThreads, .stream = stream},
                 elements<T>(x, "rotate", "x"), elements<T>(to, "rotate", "y"),
                 RotateShape(x, attrs), by);
  });
}

}  // namespace

void rotate_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  rotate(in, out[0], attrs, 1, stream);
}

void rotate_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  rotate(in, out[0], attrs, -1, stream);
}

}  // namespace quintet::QT_GPU
