#include "kernels/rms_norm/norm.cuh"
#include "kernels/rms_norm/rms_norm_gpu.h"

namespace quintet::QT_GPU {
namespace {

template <typename S, bool kResidual, MaskBits kBits>
__global__ void __launch_bounds__(kBlockThreads)
    norm_kernel(const __grid_constant__ NormArgs<typename S::Type> a) {
  auto workspace = simt::shared<float>(0, 32);
  const int64_t row = int64_t{blockIdx.x} * S::kRows + threadIdx.x / S::kThreads;
  if (row >= a.rows) return;  // a whole warp
  RowTile<S> tile;
  const float r = load_row<S, kResidual, kBits>(a, row, workspace, tile);
  const int depth = S::depth(a.depth);
  for_row_units<S>(depth, [&](int u, int at) {
    float v[S::kLane];
    norm_unit<S>(a, tile, u, at, r, v);
    store_unit(a.out + row * depth + at, v);
  });
}

/// Any depth, any alignment: a block a row, read twice.
template <typename T, bool kResidual>
__global__ void __launch_bounds__(kBlockThreads)
    plain_norm_kernel(const __grid_constant__ NormArgs<T> a) {
  auto workspace = simt::shared<float>(0, 32);
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const int64_t at = row * a.depth;
    float squares = 0;
    for (int i = static_cast<int>(threadIdx.x); i < a.depth; i += kBlockThreads) {
      float v = simt::to_float(a.x[at + i]);
      if constexpr (kResidual) {
        const float y = simt::to_float(a.y[at + i]);
        v += a.has_dropout
                 ? dropped(a.mask.rule.scale, (a.mask.template bits<1>(row, i) & 1u) != 0, y)
                 : y;
        a.x_new[at + i] = simt::from_float<T>(v);
        v = simt::to_float(a.x_new[at + i]);
      }
      squares += v * v;
    }
    const float r = reciprocal_root(block_sum(squares, workspace), a.depth, a.eps);
    const T* x = kResidual ? a.x_new : a.x;
    for (int i = static_cast<int>(threadIdx.x); i < a.depth; i += kBlockThreads)
      a.out[at + i] = simt::from_float<T>(simt::to_float(x[at + i]) * r * a.scale[i]);
  }
}

template <typename T, bool kResidual>
void launch_norm(const NormArgs<T>& a, bool vector, Stream stream) {
  const auto launch = [&](auto kernel, int64_t blocks) {
    simt::launch(kernel,
                 {.grid = static_cast<unsigned>(blocks),
                  .block = kBlockThreads,
                  .shared = 32 * sizeof(float),
                  .stream = stream},
                 a);
  };
  if (!for_norm_shape<T, kResidual>(a, vector, [&]<typename S, MaskBits kBits>() {
        launch(norm_kernel<S, kResidual, kBits>, (a.rows + S::kRows - 1) / S::kRows);
      }))
    launch(plain_norm_kernel<T, kResidual>, a.rows < (1 << 20) ? a.rows : 1 << 20);
}

}  // namespace

void rms_norm_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const char* op = "rms_norm";
  expect_shape(in[1].elements() == in[0].depth() && out[0].elements() == in[0].elements(), op,
               "...e, e -> ...e");
  if (in[0].elements() == 0) return;
  for_dtype(in[0], op, [&]<typename T>(T) {
    NormArgs<T> a = norm_args<T>(op, in[0], in[1], attrs);
    a.out = elements<T>(out[0], op, "y");
    launch_norm<T, false>(a, are_aligned({a.x, a.scale, a.out}), stream);
  });
}

void add_rms_norm_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const char* op = "add_rms_norm";
  expect_shape(out[1].elements() == in[0].elements(), op, "...e, ...e, e -> ...e, ...e");
  add_norm(op, in, out[0], attrs, stream, [&]<typename T>(NormArgs<T>& a) {
    a.out = elements<T>(out[1], op, "out");
    launch_norm<T, true>(a, are_aligned({a.x, a.y, a.scale, a.x_new, a.out}), stream);
  });
}

}  // namespace quintet::QT_GPU
